#!/usr/bin/env python3
"""Checks a privacy certificate made by `undertone budget certify`.

    python3 checker/check_certificate.py certificate.json

The program trusts the list of events in the certificate (noise multipliers, sampling rates, counts)
and its own arithmetic, and nothing else: it derives every other number again and refuses the
certificate if one differs. It needs only the standard library and shares no code with Undertone.
README.md beside this file states and proves the theorem; section numbers below refer to it.
"""

import argparse
import decimal
import hashlib
import json
import re
import sys
from fractions import Fraction
from functools import lru_cache
from math import isqrt

FORMAT = "undertone-certificate-1"
MOST_POINTS = 1 << 21
MOST_SHIFT = 64


class Refused(Exception):
    """The reason why the certificate is not valid."""


def ceil_div(a, b):
    return -(-a // b)


# --- Enclosures of real numbers (section 5) ---------------------------------------------------
#
# Python's integers are exact, so every rounding is visible: `//` and `>>` round down, `ceil_div`
# rounds up. No result depends on a floating-point operation.


class Real:
    """A real number between low / 2**bits and high / 2**bits."""

    __slots__ = ("low", "high", "bits")

    def __init__(self, low, high, bits):
        self.low, self.high, self.bits = low, high, bits

    @staticmethod
    def of(value, bits):
        """Encloses an integer or a fraction."""
        top, bottom = value.numerator << bits, value.denominator
        return Real(top // bottom, ceil_div(top, bottom), bits)

    def same(self, other):
        return other if isinstance(other, Real) else Real.of(other, self.bits)

    def __add__(self, other):
        other = self.same(other)
        return Real(self.low + other.low, self.high + other.high, self.bits)

    def __sub__(self, other):
        other = self.same(other)
        return Real(self.low - other.high, self.high - other.low, self.bits)

    def __rsub__(self, other):
        return self.same(other) - self

    def __mul__(self, other):
        other = self.same(other)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Real(min(ends) >> self.bits, -(-max(ends) >> self.bits), self.bits)

    def __truediv__(self, other):
        other = self.same(other)
        if other.low <= 0:
            raise Refused("the precision is too low to divide: the settings are out of range")
        low = (self.low << self.bits) // (other.high if self.low >= 0 else other.low)
        high = ceil_div(self.high << self.bits, other.low if self.high >= 0 else other.high)
        return Real(low, high, self.bits)

    def __rtruediv__(self, other):
        return self.same(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def rescaled(self, bits):
        """The same number over another power of two."""
        if bits >= self.bits:
            more = bits - self.bits
            return Real(self.low << more, self.high << more, bits)
        less = self.bits - bits
        return Real(self.low >> less, -(-self.high >> less), bits)


def sqrt(x):
    return Real(isqrt(max(x.low, 0) << x.bits), isqrt(x.high << x.bits) + 1, x.bits)


def atanh(n, d, bits):
    """atanh(n/d) for |n/d| <= 1/2, by its power series."""
    sign, n = (-1, -n) if n < 0 else (1, n)
    power, square = (n << bits) // d, (n * n << bits) // (d * d)
    total = terms = 0
    while power:
        total += power // (2 * terms + 1)
        power = power * square >> bits
        terms += 1
    # Each power is less than 3 units too small, and so is each term; those left out add up to
    # less than 4 units.
    error = 3 * terms + 4
    return Real(sign * total - error, sign * total + error, bits)


@lru_cache(maxsize=None)
def ln2(bits):
    return 2 * atanh(1, 3, bits)


def ln(x):
    """ln m 2^e = 2 atanh((m - 1)/(m + 1)) + e ln 2, with m from 3/4 to 3/2."""
    if x.low <= 0:
        raise Refused("the precision is too low for a logarithm: the settings are out of range")
    length = x.low.bit_length()
    e = length - x.bits - (1 if x.low << 2 < 3 << length else 0)
    m, one = x.low << max(0, -x.bits - e), 1 << max(0, x.bits + e)
    value = 2 * atanh(m - one, m + one, x.bits) + e * ln2(x.bits)
    # ln has the slope 1/x, at most 1/low over the width of x.
    value.high += ceil_div((x.high - x.low) << x.bits, x.low)
    return value


def exp(x):
    value, width = exp_at(x.low, x.bits), x.high - x.low
    if width >> x.bits:
        raise Refused("the precision is too low for an exponential: the settings are out of range")
    # e^w <= 1 + 2 w for 0 <= w <= 1.
    value.high += ceil_div(2 * width * value.high, 1 << x.bits)
    return value


def exp_at(t, bits):
    """e^t from e^(t/2^j), squared j times."""
    if t < 0:
        return 1 / exp_at(-t, bits)
    halvings = max(0, t.bit_length() - bits + 8)
    work = bits + 64 + halvings
    t <<= 64  # t / 2**work is now x / 2**halvings, below 1/256
    term = total = 1 << work
    terms = 1
    while term:
        term = (term * t >> work) // terms
        total += term
        terms += 1
    # Each term is less than 3 units too small, and those left out add up to less than 3.
    value = Real(total, total + 3 * terms + 3, work)
    for _ in range(halvings):
        value = value * value
    return value.rescaled(bits)


@lru_cache(maxsize=None)
def root_of_two_pi(bits):
    """sqrt(2 pi), with pi = 16 atan(1/5) - 4 atan(1/239) (Machin)."""

    def atan_of_inverse(n):
        power, total, terms = (1 << bits) // n, 0, 0
        while power:
            total += (-1) ** terms * (power // (2 * terms + 1))
            power //= n * n
            terms += 1
        return Real(total - 3 * terms - 3, total + 3 * terms + 3, bits)

    return sqrt(32 * atan_of_inverse(5) - 8 * atan_of_inverse(239))


def upper_tail(z):
    """P(N > z) for a standard normal N."""
    value = upper_tail_at(z.low, z.bits)
    # The density is below 1/2, so the tail at `high` is smaller by less than the width.
    value.low = max(0, value.low - (z.high - z.low))
    return value


def upper_tail_at(z, bits):
    """1/2 - density(z) (z + z^3/3 + z^5/(3 5) + z^7/(3 5 7) + ...) for z >= 0."""
    if z < 0:
        return 1 - upper_tail_at(-z, bits)
    square = (z * z >> 2 * bits) + 1
    if square > 2 * bits:
        return Real(0, 1, bits)  # P(N > z) < exp(-z^2/2)
    # The series grows to exp(z^2/2): as many more bits keep the product accurate.
    work = bits + 3 * square // 4 + 32
    z = Real(z, z, bits).rescaled(work)
    z_squared = z * z
    term, total, k = z, Real(0, 0, work), 0
    while term.high >> (work - bits) or k < square:
        total += term
        low, high = term.low * z_squared.low >> work, -(-term.high * z_squared.high >> work)
        k += 1
        term = Real(low // (2 * k + 1), ceil_div(high, 2 * k + 1), work)
    # From here on each term is at most half of the one before.
    total.high += 2 * term.high
    density = exp(0 - z_squared / 2) / root_of_two_pi(work)
    return (Fraction(1, 2) - density * total).rescaled(bits)


# --- Dominating pairs (sections 1 and 2) ------------------------------------------------------
#
# Each class has `curve(x)`, the hockey-stick curve H(x) = integral of (dP - x dQ)+ of the pair.


class Shifted:
    """(1 - q) N(0, 1) + q N(s, 1) against N(0, 1): the unit is present."""

    def __init__(self, q, s):
        self.q, self.s = q, s

    def curve(self, x):
        excess = x - (1 - self.q)
        if excess.low <= 0:
            return 1 - x
        z = ln(excess / self.q) / self.s + self.s / 2
        return self.q * upper_tail(z - self.s) - excess * upper_tail(z)


class Unshifted(Shifted):
    """The same pair exchanged: the unit is absent."""

    def curve(self, x):
        rest = 1 - x * (1 - self.q)
        if rest.low <= 0:
            return Real(0, max(0, rest.high), x.bits)
        z = ln(rest / (self.q * x)) / self.s + self.s / 2
        return rest * (1 - upper_tail(z)) - self.q * x * (1 - upper_tail(z - self.s))


class Opposed(Shifted):
    """(1 - q) N(0, 1) + q N(s, 1) against (1 - q) N(0, 1) + q N(-s, 1): a unit is replaced."""

    def curve(self, x):
        kappa = self.q * exp(0 - self.s * self.s / 2)
        moved = (1 - self.q) * (x - 1)
        root = sqrt(moved * moved + 4 * kappa * kappa * x)
        # u = e^(sz) solves (1 - q) + kappa u = x ((1 - q) + kappa / u).
        if moved.low >= 0:
            u = (moved + root) / (2 * kappa)
        else:
            u = 2 * kappa * x / (root - moved)
        z = ln(u) / self.s
        near, middle, far = upper_tail(z - self.s), upper_tail(z), upper_tail(z + self.s)
        return self.q * near - moved * middle - self.q * x * far


class Response:
    """k-ary randomized response: three outcomes, at losses -e, 0 and e."""

    def __init__(self, epsilon, categories):
        self.epsilon, self.categories = epsilon, categories


def shift_up(squared):
    """A shift that is at least the root of `squared` (a larger shift dominates a smaller one)."""
    return Fraction(isqrt(squared.numerator * 2**256 // squared.denominator) + 1, 2**128)


def pairs_of(events, adjacency):
    """(pair if the unit is present, pair if it is absent, count) of each group of events."""
    pairs, gaussian = [], Fraction(0)
    for event in events:
        count = event["count"]
        if event["kind"] == "randomized-response":
            pair = Response(event["epsilon"], event["categories"])
            pairs.append((pair, pair, count))
            continue
        sigma, q = event["noise_multiplier"], event.get("sampling_rate", 1)
        reach = 2 if adjacency == "replace-one" else 1
        if event["kind"] == "gaussian":
            gaussian += count * (event["sensitivity"] / sigma) ** 2
        elif q == 1:
            gaussian += count * (reach / sigma) ** 2
        elif adjacency == "replace-one":
            pair = Opposed(q, shift_up(1 / sigma**2))
            pairs.append((pair, pair, count))
        else:
            s = shift_up(1 / sigma**2)
            pairs.append((Shifted(q, s), Unshifted(q, s), count))
    if gaussian:
        # Gaussian releases are together one release, whose squared shift is the sum of theirs.
        pair = Shifted(Fraction(1), shift_up(gaussian))
        pairs.append((pair, pair, 1))
    return pairs


# --- Masses on the grid (section 3) -----------------------------------------------------------
#
# The grid's likelihood ratios are r^k with r = 1 + 1/mesh, k an integer.


class Masses:
    """`mass[i] / 2**scale` at the ratio r^(first + i), and `infinite / 2**scale` where Q has 0."""

    def __init__(self, first, mass, infinite):
        self.first, self.mass, self.infinite = first, mass, infinite


def working_bits(scale, mesh, first, last, shift):
    """Bits enough that the masses are accurate far beyond `scale`. Fewer would be safe as well."""
    return scale + 192 + 6 * (max(abs(first), abs(last)) // mesh + 1) + 4 * int(shift * shift)


def ratios(mesh, first, last, bits):
    """r^first, ..., r^last."""
    if max(-first, last, last - first) > MOST_POINTS:
        raise Refused("the grid is too long for this checker")
    up, down = [Real.of(1, bits)], [Real.of(1, bits)]
    for _ in range(last):
        x = up[-1]
        up.append(Real(x.low * (mesh + 1) // mesh, ceil_div(x.high * (mesh + 1), mesh), bits))
    for _ in range(-first):
        x = down[-1]
        down.append(Real(x.low * mesh // (mesh + 1), ceil_div(x.high * mesh, mesh + 1), bits))
    return (down[:0:-1] + up)[max(0, first):][: last - first + 1]


def rounded_up(x, scale):
    return max(0, x.rescaled(scale).high)


def discretized(pair, mesh, scale, first, last):
    """The pair whose curve is the polygon through (0, 1) and (r^k, H(r^k)), k = first ... last."""
    if pair.s > MOST_SHIFT:
        raise Refused("there is too little noise: the loss is out of range")
    bits = working_bits(scale, mesh, first, last, pair.s)
    pair = type(pair)(Real.of(pair.q, bits), Real.of(pair.s, bits))
    h = [pair.curve(x) for x in ratios(mesh, first, last, bits)]
    mass = [rounded_up(mesh * (h[1] - h[0]) + (1 - h[0]), scale)]
    for before, here, after in zip(h, h[1:], h[2:]):
        kink = mesh * after + (mesh + 1) * before - (2 * mesh + 1) * here
        mass.append(rounded_up(kink, scale))
    mass.append(rounded_up((mesh + 1) * (h[-2] - h[-1]), scale))
    return Masses(first, mass, rounded_up(h[-1], scale))


def discretized_response(pair, mesh, scale, first, last):
    """Each of the three outcomes is split between its neighbors on the grid."""
    if not first < 0 < last:
        raise Refused("the grid must reach from below 0 to above it")
    bits = working_bits(scale, mesh, first, last, 0)
    grid = ratios(mesh, first, last, bits)
    ratio = exp(Real.of(pair.epsilon, bits))
    unlikely = 1 / (ratio + (pair.categories - 1))
    mass = [0] * len(grid)
    mass[-first] = rounded_up((pair.categories - 2) * unlikely, scale)
    for x, p in ((ratio, ratio * unlikely), (1 / ratio, unlikely)):
        below = max(i for i, point in enumerate(grid[:-1]) if point.high <= x.low)
        if grid[below + 1].low < x.high:
            raise Refused("the grid ends below the loss of a response")
        above = p * (mesh + 1) * (1 - grid[below] / x)
        mass[below] += rounded_up(p - above, scale)
        mass[below + 1] += rounded_up(above, scale)
    return Masses(first, mass, 0)


# --- Composition (section 4) ------------------------------------------------------------------


def convolve(a, b):
    """The convolution of two lists of integers, exactly.

    Each list becomes one number with a block of decimal digits for each entry, wide enough for the
    sums of products; `decimal` multiplies long numbers by number-theoretic transform, exactly, and
    the context raises an exception if it did not.
    """
    width = len(str(max(a) * max(b) * min(len(a), len(b)) + 1))
    exact = decimal.Context(
        prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN,
        traps=[decimal.Inexact, decimal.InvalidOperation],
    )

    def packed(entries):
        return exact.create_decimal("".join([str(entry).zfill(width) for entry in entries]))

    digits = str(exact.multiply(packed(a), packed(b)))
    digits = digits.zfill((len(a) + len(b) - 1) * width)
    return [int(digits[i : i + width]) for i in range(0, len(digits), width)]


def composed(a, b, scale, cut):
    """The product of two pairs, rounded up, without up to `cut` of mass at either end.

    Mass removed at the top counts as infinite loss, mass removed at the bottom moves up.
    """
    if len(a.mass) + len(b.mass) > MOST_POINTS:
        raise Refused("the grid is too long for this checker")
    mass = [-(-entry >> scale) for entry in convolve(a.mass, b.mass)]
    total_a, total_b = sum(a.mass), sum(b.mass)
    both = a.infinite * (total_b + b.infinite) + total_a * b.infinite
    infinite = -(-both >> scale)
    last, removed = len(mass), 0
    while last > 1 and removed + mass[last - 1] <= cut:
        last -= 1
        removed += mass[last]
    infinite += removed
    start, removed = 0, 0
    while start < last - 1 and removed + mass[start] <= cut:
        removed += mass[start]
        start += 1
    mass = mass[start:last]
    mass[0] += removed
    return Masses(a.first + b.first + start, mass, infinite)


def repeated(masses, count, scale, cut_for):
    """`count` releases with these masses, by squaring."""
    power, done = masses, 1
    for bit in bin(count)[3:]:
        done *= 2
        power = composed(power, power, scale, cut_for(done))
        if bit == "1":
            done += 1
            power = composed(power, masses, scale, cut_for(done))
    return power


def delta_of(masses, epsilon, mesh, scale):
    """Sum of mass (1 - e^epsilon / r^k)+, rounded up."""
    first, last = masses.first, masses.first + len(masses.mass) - 1
    bits = scale + 192 + 6 * (max(abs(first), abs(last)) // mesh + 1)
    ratio = exp(Real.of(epsilon, bits))
    # A lower bound on e^epsilon / r^k for k = first, then for each next k.
    share = (ratio / ratios(mesh, min(first, 0), max(first, 0), bits)[-1 if first > 0 else 0]).low
    total = 0
    for mass in masses.mass:
        total += mass * max(0, (1 << bits) - share)
        share = share * mesh // (mesh + 1)
    return -(-total >> bits) + masses.infinite


# --- The certificate (section 6) --------------------------------------------------------------


def whole(value, least, most, name):
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refused(f"{name} must be a whole number from {least} to {most}")
    return value


def number(value, least, most, name):
    """A number of an event: the exact value of the IEEE double that the decimal stands for."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f"{name} must be a number")
    if not least <= value <= most:
        raise Refused(f"{name} must be from {least} to {most}")
    return Fraction(value)


def integer(text):
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 200):
        raise Refused(f"{text!r:.40} is not a whole number in quotes")
    return int(text)


def same(stated, derived, what):
    if stated != derived:
        side = "below" if stated < derived else "above"
        raise Refused(f"{what} is {side} the value that this checker derives")


def rounded_alike(stated, derived, what):
    """A mass that is a whole number of units may be rounded up to the next one: that is safe."""
    if stated != derived + 1:
        same(stated, derived, what)
    return stated


FIELDS = {
    "gaussian": {"noise_multiplier": (1e-9, 1e12), "sensitivity": (1e-9, 1e12)},
    "poisson-gaussian": {"noise_multiplier": (0.05, 1e3), "sampling_rate": (1e-7, 1)},
    "randomized-response": {"epsilon": (1e-9, 1e3)},
}


def event_of(fields):
    event = {"kind": fields.get("kind"), "count": whole(fields.get("count"), 1, 10**7, "count")}
    if event["kind"] not in FIELDS:
        raise Refused(f"no dominating pair is known for events of the kind {event['kind']!r}")
    for name, (least, most) in FIELDS[event["kind"]].items():
        event[name] = number(fields.get(name), least, most, name)
    if event["kind"] == "randomized-response":
        event["categories"] = whole(fields.get("categories"), 2, 10**18, "categories")
    if set(fields) != set(event):
        raise Refused(f"an event has unknown fields: {sorted(set(fields) - set(event))}")
    return event


def epsilon_of(text):
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,40})?", text):
        raise Refused("epsilon must be a decimal number in quotes")
    if not 0 < Fraction(text) <= 1000:
        raise Refused("epsilon must be above 0 and at most 1000")
    return Fraction(text)


def masses_of(fields):
    """The masses that the certificate states, by index, and the infinite mass."""
    if set(fields) != {"infinite", "masses"}:
        raise Refused("a pair has the fields infinite and masses")
    indices = [whole(k, -MOST_POINTS, MOST_POINTS, "an index") for k, _ in fields["masses"]]
    if len(indices) < 2 or any(a >= b for a, b in zip(indices, indices[1:])):
        raise Refused("the indices of the masses must increase")
    masses = [integer(mass) for _, mass in fields["masses"]]
    return dict(zip(indices, masses)), integer(fields["infinite"])


def check_direction(stated, pairs, certificate, epsilon):
    """Derives one direction's masses and delta, and returns delta."""
    mesh, scale, tail = certificate["mesh"], certificate["scale"], certificate["tail"]
    if set(stated) != {"unit", "delta", "pairs"} or len(stated["pairs"]) != len(pairs):
        raise Refused(f"{len(pairs)} pairs follow from the events; the certificate has others")
    releases, total = sum(count for _, count in pairs), None
    for i, ((pair, count), fields) in enumerate(zip(pairs, stated["pairs"]), 1):
        where = f"unit {stated['unit']}, pair {i}"
        masses, infinite = masses_of(fields)
        make = discretized_response if isinstance(pair, Response) else discretized
        derived = make(pair, mesh, scale, min(masses), max(masses))
        mass = [
            rounded_alike(masses.get(k, 0), mass, f"{where}: the mass at index {k}")
            for k, mass in enumerate(derived.mass, derived.first)
        ]
        infinite = rounded_alike(infinite, derived.infinite, f"{where}: the infinite mass")
        checked = Masses(derived.first, mass, infinite)
        power = repeated(checked, count, scale, lambda done: tail * done // releases)
        total = power if total is None else composed(total, power, scale, tail)
    delta = delta_of(total, epsilon, mesh, scale)
    same(integer(stated["delta"]), delta, f"unit {stated['unit']}: delta")
    return delta


def check(certificate):
    """Returns (epsilon, delta), both exact, or raises Refused."""
    if certificate.get("format") != FORMAT:
        raise Refused(f"this is not a certificate of the format {FORMAT}")
    known = "format adjacency events epsilon delta mesh scale tail directions".split()
    if set(certificate) != set(known):
        raise Refused(f"the fields of a certificate are: {', '.join(known)}")
    if certificate["adjacency"] not in ("add-remove", "replace-one"):
        raise Refused("adjacency must be add-remove or replace-one")
    whole(certificate["mesh"], 2, 10**8, "mesh")
    scale = whole(certificate["scale"], 32, 256, "scale")
    whole(certificate["tail"], 0, 1 << scale, "tail")
    epsilon = epsilon_of(certificate["epsilon"])
    events = [event_of(fields) for fields in certificate["events"]]
    if not events:
        raise Refused("there is no event")
    pairs = pairs_of(events, certificate["adjacency"])
    directions = {"present": [(present, count) for present, _, count in pairs]}
    if any(present is not absent for present, absent, _ in pairs):
        directions["absent"] = [(absent, count) for _, absent, count in pairs]
    if [stated["unit"] for stated in certificate["directions"]] != list(directions):
        raise Refused(f"the directions must be: {', '.join(directions)}")
    deltas = [
        check_direction(stated, pairs, certificate, epsilon)
        for stated, pairs in zip(certificate["directions"], directions.values())
    ]
    same(integer(certificate["delta"]), max(deltas), "delta")
    return epsilon, Fraction(max(deltas), 1 << scale)


# --- The ledger, if given ---------------------------------------------------------------------


def check_ledger(lines, certificate):
    """Refuses a certificate whose events are not exactly those of the ledger."""
    previous, totals, adjacency = None, {}, None

    def add(part):
        key = json.dumps(part["event"], sort_keys=True)
        totals[key] = totals.get(key, 0) + part["count"]

    for text in lines:
        covered, _, rest = text.rstrip("\n").rpartition(',"hash":"')
        digest = hashlib.sha256((covered + "}").encode()).hexdigest()
        entry = json.loads(covered + "}") if rest == digest + '"}' else {}
        if not entry or (previous is not None and entry["previous"] != previous):
            raise Refused("a line of the ledger is torn or was changed")
        previous = digest
        if "terms" in entry:
            adjacency = entry["terms"]["adjacency"]
        for part in entry.get("repair", []) + ([entry["spent"]] if "spent" in entry else []):
            add(part)
    stated = {}
    for event in certificate["events"]:
        key = json.dumps({k: v for k, v in event.items() if k != "count"}, sort_keys=True)
        stated[key] = stated.get(key, 0) + event["count"]
    if stated != totals or certificate["adjacency"] != adjacency:
        raise Refused("the events of the certificate are not those of the ledger")


def fields_once(pairs):
    """A JSON object; other readers might interpret a repeated field differently."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Refused("a field is given twice")
    return fields


def decimal_up(x, digits=5):
    """x > 0 with a few digits, rounded up."""
    context = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING)
    return str(context.divide(decimal.Decimal(x.numerator), decimal.Decimal(x.denominator)))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("certificate", help="file that `undertone budget certify` wrote")
    parser.add_argument("--ledger", help="also compare the events with this ledger (ledger.jsonl)")
    options = parser.parse_args(arguments)
    try:
        with open(options.certificate, encoding="utf-8") as file:
            certificate = json.load(file, object_pairs_hook=fields_once)
        epsilon, delta = check(certificate)
        if options.ledger:
            with open(options.ledger, encoding="utf-8") as file:
                check_ledger(file, certificate)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except Refused as reason:
        print(f"refused: {reason}", file=sys.stderr)
        return 1
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        print(f"refused: this is not a certificate ({error})", file=sys.stderr)
        return 1
    change = {"add-remove": "adding or removing", "replace-one": "replacing"}
    for event in certificate["events"]:
        count, kind = event.pop("count"), event.pop("kind")
        print(f"  {count} x {kind}, {', '.join(f'{name} {event[name]}' for name in event)}")
    print(
        f"valid: ({certificate['epsilon']}, {decimal_up(delta)})-differential privacy for "
        f"{change[certificate['adjacency']]} one unit"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
