"""A private classifier from a DataFrame: train, predict, attack and report."""

import sys

import pandas as pd
import undertone as ut


def main(folder: str) -> None:
    demo = ut.demo(f"{folder}/demo", letters=1000)
    letters = pd.DataFrame(demo.letters)
    run = ut.train(
        model=demo.model,
        data=letters,
        validation=pd.DataFrame(demo.validation),
        text="text",
        label="label",
        author="patient",
        epsilon=8,
        delta=1e-5,
        max_tokens=96,
        out=f"{folder}/first",
        verbose=True,
    )
    print(run.guarantee)
    print(f"accuracy {run.metrics['accuracy']:.3f}")
    print(pd.DataFrame(run.predict(letters.text[:3].tolist())))
    attack = run.audit("membership", examples=200, loss_only=True)
    for result in attack.results["membership"]:
        print(result["attack"], result["auc"])
    run.report(f"{folder}/report.html")


if __name__ == "__main__":
    main(sys.argv[1])
