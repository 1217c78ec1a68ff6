"""Computes the privacy cost of a noise multiplier before training."""

import undertone as ut


def epsilon_of(noise: float, examples: int, batch: int, epochs: int, delta: float) -> ut.Epsilon:
    """ε of DP-SGD over some epochs."""
    accountant = ut.Accountant()
    accountant.step(
        noise_multiplier=noise, sample_rate=batch / examples, count=epochs * (examples // batch)
    )
    return accountant.epsilon(delta)


def main() -> None:
    upper, lower = epsilon_of(1.1, examples=60_000, batch=256, epochs=60, delta=1e-5)
    print(f"ε is between {lower:.4f} and {upper:.4f}")
    noise = ut.noise_multiplier(epsilon=3, delta=1e-5, sample_rate=256 / 60_000, steps=14_040)
    print(f"for ε = 3, a noise multiplier of {noise:.4f}")


if __name__ == "__main__":
    main()
