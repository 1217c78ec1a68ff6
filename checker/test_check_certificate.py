"""Tests of the checker: its bounds, its rules, and that it refuses every changed digit.

    python3 -m unittest discover checker
"""

import contextlib
import decimal
import functools
import hashlib
import io
import json
import math
import pathlib
import random
import tempfile
import unittest
from fractions import Fraction

import check_certificate as checker

EXAMPLES = sorted((pathlib.Path(__file__).parent / "examples").glob("*.json"))


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def example(name):
    return load(pathlib.Path(__file__).parent / "examples" / f"{name}.json")


def remembered(function):
    """The function with cached results: a changed digit leaves most of the work unchanged."""
    known = {}

    def key(value):
        if isinstance(value, checker.Masses):
            return (value.first, tuple(value.mass), value.infinite)
        if callable(value):
            return value(1 << 20)
        return (type(value), *vars(value).values()) if hasattr(value, "__dict__") else value

    @functools.wraps(function)
    def call(*arguments):
        about = tuple(map(key, arguments))
        if about not in known:
            known[about] = function(*arguments), arguments
        return known[about][0]

    return call


def upper_tail(z):
    """P(N > z) by the alternating series of the error function, in decimals."""
    # Gauss and Legendre's iteration doubles the number of correct digits.
    a, b, t, p = decimal.Decimal(1), 1 / decimal.Decimal(2).sqrt(), decimal.Decimal("0.25"), 1
    for _ in range(7):
        mean = (a + b) / 2
        b, t, a, p = (a * b).sqrt(), t - p * (a - mean) ** 2, mean, 2 * p
    pi = (a + b) ** 2 / (4 * t)
    term, total = z, decimal.Decimal(0)
    for n in range(200):
        total += term / (2 * n + 1)
        term *= -z * z / (2 * (n + 1))
    return decimal.Decimal("0.5") - total / (2 * pi).sqrt()


class Bounds(unittest.TestCase):
    """Enclosures contain the true value and are narrow."""

    BITS = 200

    def encloses(self, found, digits):
        # `digits` is rounded: the truth is within a few units of its last place.
        truth, unit = Fraction(digits), Fraction(5, 10 ** len(digits.split(".")[1]))
        self.assertLessEqual(Fraction(found.low, 1 << found.bits), truth + unit, digits)
        self.assertGreaterEqual(Fraction(found.high, 1 << found.bits), truth - unit, digits)
        # Relative to the size of large values.
        size = max(1, abs(found.high) >> found.bits)
        self.assertLessEqual(found.high - found.low, size << 40, digits)

    def digits(self, value):
        return "{:.40f}".format(value)

    def real(self, text):
        return checker.Real.of(Fraction(text), self.BITS)

    def test_values_of_tables(self):
        # Exponentials, logarithms and roots of `decimal` are correctly rounded.
        with decimal.localcontext() as context:
            context.prec = 70
            for text in ("1", "-3.5", "0.001", "17", "-40.25"):
                self.encloses(checker.exp(self.real(text)), self.digits(decimal.Decimal(text).exp()))
            for text in ("10", "0.001", "0.75", "1.5", "123456"):
                self.encloses(checker.ln(self.real(text)), self.digits(decimal.Decimal(text).ln()))
                root = decimal.Decimal(text).sqrt()
                self.encloses(checker.sqrt(self.real(text)), self.digits(root))
            for text in ("0", "1", "-3", "5", "0.125", "-6.5"):
                tail = checker.upper_tail(self.real(text))
                self.encloses(tail, self.digits(upper_tail(decimal.Decimal(text))))

    def test_functions_agree_with_doubles(self):
        value = lambda x: (x.low / (1 << x.bits), x.high / (1 << x.bits))
        for i in range(-40, 41):
            z = Fraction(i, 7)
            x = checker.Real.of(z, self.BITS)
            for found, truth in (
                (checker.upper_tail(x), 0.5 * math.erfc(z / math.sqrt(2))),
                (checker.exp(x), math.exp(z)),
            ):
                low, high = value(found)
                self.assertLessEqual(low, truth * (1 + 1e-13) + 1e-50)
                self.assertGreaterEqual(high, truth * (1 - 1e-13) - 1e-50)
            if i > 0:
                low, high = value(checker.ln(x))
                self.assertTrue(abs(low - math.log(z)) < 1e-14 and abs(high - low) < 1e-40)

    def test_arithmetic_rounds_outwards(self):
        random.seed(5)
        for _ in range(2000):
            bits = 12
            a, b = (Fraction(random.randint(-999, 999), random.randint(1, 99)) for _ in "ab")
            x, y = checker.Real.of(a, bits), checker.Real.of(b, bits)
            results = [(x + y, a + b), (x - y, a - b), (x * y, a * b), (3 - x, 3 - a)]
            if y.low > 0:
                results.append((x / y, a / b))
            for found, truth in results:
                self.assertTrue(found.low <= truth * (1 << bits) <= found.high, (a, b))


class Pairs(unittest.TestCase):
    """The discretized pair lies above the true curve everywhere, and close to it."""

    def test_discretized_pairs_dominate(self):
        def tail(z):
            return 0.5 * math.erfc(z / math.sqrt(2))

        def truth(kind, q, s, x):
            # The supremum over thresholds, by brute force: never above the truth.
            p = {
                checker.Shifted: lambda z: ((1 - q) * tail(z) + q * tail(z - s), tail(z)),
                checker.Unshifted: lambda z: (tail(-z), (1 - q) * tail(-z) + q * tail(s - z)),
                checker.Opposed: lambda z: (
                    (1 - q) * tail(z) + q * tail(z - s), (1 - q) * tail(z) + q * tail(z + s)
                ),
            }[kind]
            pairs = [p(i / 20) for i in range(-200, 201)] + [(1, 1)]
            return max(0, max(a - x * b for a, b in pairs))

        mesh, scale = 20, 64
        r = 1 + 1 / mesh
        for q, s in ((Fraction(1, 10), Fraction(1, 2)), (Fraction(1, 4), Fraction(2))):
            for kind in (checker.Shifted, checker.Unshifted, checker.Opposed):
                masses = checker.discretized(kind(q, s), mesh, scale, -40, 60)
                total = sum(masses.mass) + masses.infinite
                self.assertTrue(0 <= total - (1 << scale) <= 110, (kind, total - (1 << scale)))
                for i in range(-30, 60):
                    x = r ** (i + 0.37)
                    found = masses.infinite + sum(
                        mass * max(0, 1 - x / r ** (masses.first + k))
                        for k, mass in enumerate(masses.mass)
                    )
                    exact = truth(kind, float(q), float(s), x)
                    self.assertGreaterEqual(found / 2**scale, exact - 1e-12, (kind, q, i))
                    self.assertLessEqual(found / 2**scale, exact + 0.01, (kind, q, i))

    def test_responses_keep_both_totals(self):
        pair, mesh, scale = checker.Response(Fraction(1, 3), 5), 17, 80
        masses = checker.discretized_response(pair, mesh, scale, -8, 8)
        r = 1 + 1 / mesh
        p = sum(masses.mass) / 2**scale
        q = sum(m / r ** (masses.first + k) for k, m in enumerate(masses.mass)) / 2**scale
        self.assertAlmostEqual(p, 1, places=12)
        self.assertAlmostEqual(q, 1, places=12)


class Composition(unittest.TestCase):
    def test_convolution_is_exact(self):
        random.seed(1)
        for _ in range(20):
            a = [random.getrandbits(random.choice((1, 90))) for _ in range(random.randint(1, 30))]
            b = [random.getrandbits(90) for _ in range(random.randint(1, 30))]
            a[0] = b[-1] = 1
            naive = [0] * (len(a) + len(b) - 1)
            for i, x in enumerate(a):
                for j, y in enumerate(b):
                    naive[i + j] += x * y
            self.assertEqual(checker.convolve(a, b), naive)

    def test_rounding_and_cutting_only_add_to_delta(self):
        mesh, scale = 10, 16
        once = checker.Masses(-3, [3000, 20000, 1, 22000, 17000, 3300], 235)
        exact, exact_infinite = {0: Fraction(1)}, Fraction(0)
        unit = 1 << scale
        for _ in range(13):
            exact_infinite += sum(exact.values()) * once.infinite / unit
            grown = {}
            for k, mass in exact.items():
                for i, m in enumerate(once.mass):
                    at = k + once.first + i
                    grown[at] = grown.get(at, 0) + mass * Fraction(m, unit)
            exact = grown
        for cut in (0, 50):
            found = checker.repeated(once, 13, scale, lambda done: cut)
            for epsilon in (Fraction(1, 10), Fraction(1), Fraction(2)):
                ratio, r = math.exp(epsilon), 1 + 1 / mesh
                least = sum(float(m) * max(0, 1 - ratio / r**k) for k, m in exact.items())
                delta = checker.delta_of(found, epsilon, mesh, scale) / unit
                self.assertGreaterEqual(delta, least - 1e-12)
                self.assertLessEqual(delta, least + float(exact_infinite) + 0.15)


class Certificates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.originals = {}
        for name in ("discretized", "discretized_response", "repeated", "composed", "delta_of"):
            cls.originals[name] = getattr(checker, name)
            setattr(checker, name, remembered(cls.originals[name]))

    @classmethod
    def tearDownClass(cls):
        for name, function in cls.originals.items():
            setattr(checker, name, function)

    def refused(self, certificate, about=""):
        with self.assertRaises(checker.Refused, msg=about) as caught:
            checker.check(certificate)
        return str(caught.exception)

    def test_examples_are_valid(self):
        self.assertGreaterEqual(len(EXAMPLES), 4)
        for path in EXAMPLES:
            certificate = load(path)
            epsilon, delta = checker.check(certificate)
            self.assertEqual(str(certificate["delta"]), str(delta * (1 << certificate["scale"])))
            self.assertEqual(epsilon, Fraction(certificate["epsilon"]))

    def changes(self, text):
        """The text with one digit changed: each place, to the digit below and to the digit
        above."""
        for i, digit in enumerate(text):
            for other in {"0": "1", "9": "8"}.get(digit, str(int(digit) - 1) + str(int(digit) + 1)
                                                  if digit.isdigit() else ""):
                yield text[:i] + other + text[i + 1 :]

    def test_every_digit_of_epsilon_and_delta_matters(self):
        for path in EXAMPLES:
            for field in ("epsilon", "delta"):
                for text in self.changes(load(path)[field]):
                    certificate = load(path)
                    certificate[field] = text
                    self.refused(certificate, f"{path.name}: {field} = {text}")

    def test_every_digit_of_every_mass_matters(self):
        random.seed(3)
        for path in EXAMPLES:
            certificate = load(path)
            for direction in certificate["directions"]:
                for text in self.changes(direction["delta"]):
                    kept, direction["delta"] = direction["delta"], text
                    self.refused(certificate, f"{path.name}: delta = {text}")
                    direction["delta"] = kept
                for pair in direction["pairs"]:
                    for text in self.changes(pair["infinite"]):
                        kept, pair["infinite"] = pair["infinite"], text
                        self.refused(certificate, f"{path.name}: infinite mass {text}")
                        pair["infinite"] = kept
                    for entry in pair["masses"]:
                        kept = entry[1]
                        # One more is a safe rounding, and may leave delta unchanged.
                        changed = [c for c in self.changes(kept) if int(c) != int(kept) + 1]
                        # One less, which is the smallest change in a forger's favor, and some
                        # other digit.
                        for text in (str(int(kept) - 1), random.choice(changed)):
                            entry[1] = text
                            self.refused(certificate, f"{path.name}: mass {text} at {entry[0]}")
                        entry[1] = kept

    def test_events_and_grid_cannot_be_changed(self):
        for name, change in (
            ("sampled", lambda c: c["events"][0].update(noise_multiplier=2.0000000000000004)),
            ("sampled", lambda c: c["events"][1].update(sampling_rate=0.09999999999999999)),
            ("sampled", lambda c: c["events"][0].update(count=9)),
            ("sampled", lambda c: c["events"].pop()),
            ("sampled", lambda c: c.update(adjacency="replace-one")),
            ("sampled", lambda c: c.update(mesh=c["mesh"] + 1)),
            ("sampled", lambda c: c.update(scale=c["scale"] - 8)),
            ("sampled", lambda c: c.update(tail=0)),
            ("sampled", lambda c: c["directions"].pop()),
            ("sampled", lambda c: c["directions"].reverse()),
            ("sampled", lambda c: c["directions"][0]["pairs"][0]["masses"].pop()),
            ("sampled", lambda c: c["directions"][0]["pairs"][0]["masses"].pop(0)),
            ("sampled", lambda c: c["directions"][0]["pairs"].pop()),
            ("replaced", lambda c: c.update(adjacency="add-remove")),
            ("replaced", lambda c: c["events"][1].update(sensitivity=1.9999999999999998)),
            ("replaced", lambda c: c["events"][2].update(epsilon=0.49999999999999994)),
            ("replaced", lambda c: c["events"][2].update(categories=4)),
            ("gaussian", lambda c: c["events"][0].update(count=1)),
            ("responses", lambda c: c["events"][0].update(count=19)),
            ("responses", lambda c: c["events"][0].update(kind="selection")),
            ("responses", lambda c: c["events"][0].update(more=1)),
            ("responses", lambda c: c.update(more=1)),
            ("responses", lambda c: c["events"].clear()),
        ):
            certificate = example(name)
            change(certificate)
            self.refused(certificate, name)

    def test_a_forger_who_repeats_the_arithmetic_is_refused(self):
        """Half of a mass and the delta that follows from it: consistent, but too small."""
        certificate = example("gaussian")
        pair = certificate["directions"][0]["pairs"][0]
        entry = pair["masses"][-3]
        entry[1] = str(int(entry[1]) // 2)
        masses = checker.Masses(
            pair["masses"][0][0], [int(mass) for _, mass in pair["masses"]], int(pair["infinite"])
        )
        epsilon = Fraction(certificate["epsilon"])
        delta = checker.delta_of(masses, epsilon, certificate["mesh"], certificate["scale"])
        self.assertLess(delta, int(certificate["delta"]))
        certificate["delta"] = certificate["directions"][0]["delta"] = str(delta)
        self.assertIn("below", self.refused(certificate))

    def test_numbers_that_are_none_are_refused(self):
        for field, value in (
            ("epsilon", "1e3"), ("epsilon", "-1"), ("epsilon", "0"), ("epsilon", "1001"),
            ("delta", "-5"), ("delta", " 5"), ("mesh", 1), ("mesh", True), ("mesh", 2.0),
            ("scale", 10**6), ("tail", -1), ("format", "undertone-certificate-2"),
        ):
            certificate = example("responses")
            certificate[field] = value
            self.refused(certificate, field)
        certificate = example("gaussian")
        for value in (float("nan"), float("inf"), "2", None, 0, -1.0):
            certificate["events"][0]["noise_multiplier"] = value
            self.refused(certificate)
        certificate["events"][0]["noise_multiplier"] = 1e-9
        self.assertIn("too little noise", self.refused(certificate))


class Program(unittest.TestCase):
    def run_on(self, text, *more):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "certificate.json"
            file.write_text(text, encoding="utf-8")
            said, wrong = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
                code = checker.main([str(file), *more])
            return code, said.getvalue(), wrong.getvalue()

    def test_it_says_what_holds_or_why_not(self):
        certificate = example("responses")
        code, said, wrong = self.run_on(json.dumps(certificate))
        self.assertEqual((code, wrong), (0, ""))
        self.assertIn("valid: (3.27550, 0.00001", said)
        self.assertIn("replacing one unit", said)
        certificate["epsilon"] = "3.27549"
        code, said, wrong = self.run_on(json.dumps(certificate))
        self.assertEqual((code, said), (1, ""))
        self.assertIn("refused: unit present: delta is below", wrong)
        for text in ("", "{}", "[]", "3", '{"format": "undertone-certificate-1"}', "null"):
            self.assertEqual(self.run_on(text)[0], 1, text)
        twice = json.dumps(example("responses"))[:-1] + ', "epsilon": "1.0"}'
        self.assertIn("given twice", self.run_on(twice)[2])
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(checker.main(["/nowhere/at/all"]), 2)

    def ledger(self, *entries):
        lines, previous = "", ""
        for entry in entries:
            covered = json.dumps({**entry, "previous": previous}, separators=(",", ":"))
            previous = hashlib.sha256(covered.encode()).hexdigest()
            lines += f'{covered[:-1]},"hash":"{previous}"}}\n'
        return lines

    def test_events_are_compared_with_the_ledger(self):
        text = json.dumps(example("responses"))
        event = {"kind": "randomized-response", "epsilon": 0.25, "categories": 4}
        terms = {"terms": {"adjacency": "replace-one"}}
        spent = {"spent": {"event": event, "count": 19}}
        repair = {"repair": [{"event": event, "count": 1}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ledger.jsonl"
            for lines, code in (
                (self.ledger(terms, spent, repair), 0),
                (self.ledger(terms, spent), 1),
                (self.ledger({"terms": {"adjacency": "add-remove"}}, spent, repair), 1),
                (self.ledger(terms, spent, repair).replace(":19", ":18"), 1),
                (self.ledger(terms, spent, repair)[:-5], 1),
            ):
                path.write_text(lines, encoding="utf-8")
                self.assertEqual(self.run_on(text, "--ledger", str(path))[0], code, lines)


if __name__ == "__main__":
    unittest.main()
