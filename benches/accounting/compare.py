"""Asks three accountants the same questions in turn, and prints their times and the widths of their
intervals.

Peers are timed inside their process, after their imports. Undertone is timed as a whole process,
including startup. Each time is the minimum over the rounds.
"""

import json
import subprocess
import sys
import time

import dp_accounting
from dp_accounting import pld
from prv_accountant import PRVAccountant
from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism

UNDERTONE = sys.argv[1]
ROUNDS = 3
SST2 = 32 / 67349
QUESTIONS = [
    ("three phases: σ = 0.6, 0.5, 0.42, 2,104 steps each, q = 32/67349, δ = 1e-5",
     [(0.6, SST2, 2104), (0.5, SST2, 2104), (0.42, SST2, 2104)], 1e-5),
    ("σ = 1.1, q = 256/60000, 14,063 steps, δ = 1e-5", [(1.1, 256 / 60000, 14063)], 1e-5),
    ("σ = 0.8, q = 0.001, 20,000 steps, δ = 1e-6", [(0.8, 0.001, 20000)], 1e-6),
    ("σ = 1, q = 0.001, 10⁶ steps, δ = 1e-6", [(1.0, 0.001, 1_000_000)], 1e-6),
]


def ask_undertone(phases, delta):
    arguments = [UNDERTONE, "budget", "epsilon", "--delta", repr(delta), "--json"]
    for sigma, q, steps in phases:
        arguments += ["--phase", f"{sigma!r},{q!r},{steps}"]
    bounds = json.loads(subprocess.run(arguments, capture_output=True, check=True).stdout)["epsilon"]
    return bounds["lower"], bounds["upper"]


def ask_prv(phases, delta):
    accountant = PRVAccountant(
        prvs=[PoissonSubsampledGaussianMechanism(noise_multiplier=s, sampling_probability=q) for s, q, _ in phases],
        max_self_compositions=[n for _, _, n in phases], eps_error=0.01, delta_error=delta / 1000)
    low, _, up = accountant.compute_epsilon(delta=delta, num_self_compositions=[n for _, _, n in phases])
    return low, up


def ask_dp(phases, delta):
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    for sigma, q, steps in phases:
        accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma)), steps)
    return None, accountant.get_epsilon(delta)


def timed(ask, *arguments):
    start = time.perf_counter()
    try:
        answer = ask(*arguments)
    except Exception as error:  # a peer that gives up is part of the comparison
        return time.perf_counter() - start, type(error).__name__
    return time.perf_counter() - start, answer


def show(seconds, answer):
    if isinstance(answer, str):
        return f"{answer} after {seconds:.2f} s"
    low, up = answer
    gap = f"gap {up - low:.4f}" if low is not None else "upper bound only"
    return f"{up:.4f}, {gap}, {1000 * seconds:,.0f} ms"


print("| question | undertone | prv_accountant 0.2.0 (eps_error 0.01) | dp_accounting 0.6.0 (PLD, interval 1e-4) | prv time ÷ ours |")
print("|---|---|---|---|---|")
for name, phases, delta in QUESTIONS:
    best = {}
    for _ in range(ROUNDS):
        for peer, ask in [("us", ask_undertone), ("prv", ask_prv), ("dp", ask_dp)]:
            if peer in best and best[peer][0] > 30:
                continue
            seconds, answer = timed(ask, phases, delta)
            if peer not in best or seconds < best[peer][0]:
                best[peer] = (seconds, answer)
    ratio = best["prv"][0] / best["us"][0]
    print(f"| {name} | {show(*best['us'])} | {show(*best['prv'])} | {show(*best['dp'])} | {ratio:,.0f} |", flush=True)

print()
print("| calibration | undertone |")
print("|---|---|")
for name, arguments in [
    ("noise for ε = 8, δ = 1e-5, q = 0.0152, 650 steps", "noise --epsilon 8 --delta 1e-5 --sampling-rate 0.0152 --steps 650"),
    ("EWPBA, SST-2, ε = 8, S = 2, 3 epochs",
     "schedule --method ewpba --epsilon 8 --delta 1e-5 --examples 67349 --batch 32 --epochs 3 --step-distance 2"),
    ("EWPBA, SST-2, ε = 8, S = 2, 10 epochs",
     "schedule --method ewpba --epsilon 8 --delta 1e-5 --examples 67349 --batch 32 --epochs 10 --step-distance 2"),
]:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run([UNDERTONE, "budget", *arguments.split(), "--json"], capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    print(f"| {name} | {1000 * min(times):,.0f} ms |")
