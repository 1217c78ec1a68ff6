"""Interoperation with other libraries: Opacus, transformers and peft."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
import undertone as ut
import world

torch = pytest.importorskip("torch")


def test_opacus_reports_the_certified_epsilon() -> None:
    opacus = pytest.importorskip("opacus")
    assert ut.opacus_accountant() == "undertone"
    engine = opacus.PrivacyEngine(accountant=ut.opacus_accountant())
    for _ in range(100):
        engine.accountant.step(noise_multiplier=1.1, sample_rate=0.01)
    ours = engine.get_epsilon(1e-5)
    of_opacus = opacus.PrivacyEngine(accountant="prv")
    for _ in range(100):
        of_opacus.accountant.step(noise_multiplier=1.1, sample_rate=0.01)
    expected = ut.Accountant().step(noise_multiplier=1.1, sample_rate=0.01, count=100)
    assert ours == expected.epsilon(1e-5).upper
    assert abs(ours - of_opacus.get_epsilon(1e-5)) < 0.02


def test_opacus_calibrates_and_trains_with_it() -> None:
    opacus = pytest.importorskip("opacus")
    from opacus.accountants.utils import get_noise_multiplier

    name = ut.opacus_accountant()
    noise = get_noise_multiplier(
        target_epsilon=3.0, target_delta=1e-5, sample_rate=0.1, steps=20, accountant=name
    )
    ours = ut.noise_multiplier(epsilon=3, delta=1e-5, sample_rate=0.1, steps=20)
    assert noise == pytest.approx(ours, abs=0.02)
    data = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))
    loader = torch.utils.data.DataLoader(data, batch_size=10)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = opacus.PrivacyEngine(accountant=name)
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    steps = 0
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        steps += 1
    expected = ut.Accountant().step(noise_multiplier=1.0, sample_rate=0.25, count=steps)
    assert engine.get_epsilon(1e-3) == pytest.approx(expected.epsilon(1e-3).upper)


@pytest.fixture
def folder() -> Any:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def train(folder: Path, architecture: str, **changes: Any) -> ut.Run:
    base = world.model(folder / "model", architecture)
    settings = {**world.SETTINGS, **changes.pop("settings", {})}
    return ut.train(
        model=base, data=world.rows(), out=folder / "run", settings=settings,
        **{**world.FAST, **changes},
    )


def test_trainer_callbacks_are_driven(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    seen: list[Any] = []

    class Recorder(transformers.TrainerCallback):  # type: ignore[name-defined,misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen.append(("begin", state.max_steps))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
            seen.append((state.global_step, logs))

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen.append(("end", len(state.log_history)))

    logger = ut.hf.logger(Recorder(), output_dir=str(folder / "logs"), every=4)
    train(folder, "bert-classification", callbacks=[logger], validation=world.rows(20))
    assert seen[0] == ("begin", 12) and seen[-1] == ("end", 3)
    assert [step for step, _ in seen[1:-1]] == [4, 8, 12]
    assert {"epsilon", "learning_rate", "eval_accuracy"} <= set(seen[-2][1])


def test_adapters_load_in_peft(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    run = train(
        folder, "gpt2-causal-lm", label=None, labels=None, tuning=None,
        settings={"model.tuning": {"lora": {"rank": 2}}}, learning_rate=0.05,
    )
    text = "the cat sat"
    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "model").eval()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "model" / "tokenizer.json")
    )
    tokens = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        before = base(tokens, labels=tokens).loss.item()
        adapted = peft.PeftModel.from_pretrained(base, run.adapter).eval()
        after = adapted(tokens, labels=tokens).loss.item()
    assert before != pytest.approx(after, rel=1e-4)
    assert run.predict([text])[0]["loss"] == pytest.approx(after, rel=1e-3)


def test_whole_models_load_in_transformers(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    run = train(folder, "bert-classification")
    assert run.adapter is None
    model = transformers.AutoModelForSequenceClassification.from_pretrained(run.model).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(run.model / "tokenizer.json")
    )
    text = "the cat sat"
    with torch.no_grad():
        tokens = torch.tensor([tokenizer(text)["input_ids"]])
        shares = model(tokens).logits.softmax(-1)[0].tolist()
    expected = {model.config.id2label[i]: share for i, share in enumerate(shares)}
    probabilities = run.predict([text])[0]["probabilities"]
    assert probabilities == pytest.approx(expected, abs=1e-4)
