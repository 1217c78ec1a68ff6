"""The privacy accountant from Python: values, bounds and errors."""

import math
import unittest
from pathlib import Path

import undertone as ut


class AccountantTest(unittest.TestCase):
    def test_dp_sgd_on_mnist(self) -> None:
        accountant = ut.Accountant()
        accountant.step(noise_multiplier=1.1, sample_rate=256 / 60_000, count=14_063)
        bounds = accountant.epsilon(delta=1e-5)
        self.assertLess(bounds.lower, 2.38169)
        self.assertGreater(bounds.upper, 2.38169)
        self.assertLess(bounds.upper - bounds.lower, 0.0025)
        upper, lower = bounds
        self.assertEqual((upper, lower), (bounds.upper, bounds.lower))
        back = accountant.delta(epsilon=bounds.upper)
        self.assertLessEqual(back.lower, 1e-5)
        self.assertEqual(len(accountant), 14_063)

    def test_a_gaussian_release_is_exact(self) -> None:
        accountant = ut.Accountant("replace-one").gaussian(noise_multiplier=2, sensitivity=2)
        bounds = accountant.epsilon(1e-5)
        self.assertAlmostEqual(bounds.upper, bounds.lower, places=6)
        response = ut.Accountant("replace-one").randomized_response(epsilon=1, categories=2)
        self.assertLessEqual(response.epsilon(1e-9).lower, 1)

    def test_noise_multiplier_meets_the_target_and_no_more(self) -> None:
        noise = ut.noise_multiplier(epsilon=3, delta=1e-5, sample_rate=0.01, steps=500)
        accountant = ut.Accountant().step(noise_multiplier=noise, sample_rate=0.01, count=500)
        self.assertLessEqual(accountant.epsilon(1e-5).upper, 3)
        self.assertGreater(accountant.epsilon(1e-5).upper, 2.99)

    def test_the_trade_off_curve_rises_from_above_chance(self) -> None:
        accountant = ut.Accountant().step(noise_multiplier=1, sample_rate=0.1, count=50)
        points = accountant.trade_off([0.001, 0.01, 0.1])
        upper = [point["upper"] for point in points]
        self.assertEqual(upper, sorted(upper))
        for point in points:
            self.assertLessEqual(point["lower"], point["upper"])
            self.assertGreaterEqual(point["upper"], point["false_positive_rate"])

    def test_the_version_is_that_of_the_program(self) -> None:
        text = (Path(__file__).resolve().parents[3] / "Cargo.toml").read_text(encoding="utf-8")
        self.assertIn(f'[workspace.package]\nversion = "{ut.__version__}"', text)

    def test_mistakes_are_one_sentence(self) -> None:
        accountant = ut.Accountant()
        step = accountant.step
        for call in (
            lambda: accountant.epsilon(1e-5),
            lambda: step(noise_multiplier=0, sample_rate=0.1),
            lambda: step(noise_multiplier=1, sample_rate=1.5),
            lambda: step(noise_multiplier=math.nan, sample_rate=0.1),
            lambda: step(noise_multiplier="one"),  # type: ignore[arg-type]
            lambda: step(noise_multiplier=1, count=0),
            lambda: step(noise_multiplier=1, count=-1),
            lambda: ut.Accountant("add").step(noise_multiplier=1),
            lambda: ut.Accountant().step(noise_multiplier=1).epsilon(2),
            lambda: ut.Accountant().step(noise_multiplier=1).epsilon(1e-5, "pvr"),
            lambda: ut.noise_multiplier(epsilon=0, delta=1e-5, sample_rate=0.1, steps=1),
            lambda: ut.noise_multiplier(epsilon=1, delta=1e-5, sample_rate=0.1, steps=-1),
        ):
            with self.assertRaises(ut.UserError) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception))
        # Rejected steps are not in the ledger.
        self.assertEqual(len(accountant), 0)


if __name__ == "__main__":
    unittest.main()
