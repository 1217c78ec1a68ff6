"""Measurements that take turns on this machine: code shared by the benchmarks."""

import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def arguments(parser):
    """The arguments shared by all benchmarks."""
    parser.add_argument("--binary", default=str(ROOT / "target/release/undertone"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cpu", choices=LEVELS, help="hold all of them to these instructions at most, whatever the processor has")


# Restricts undertone, and each of the libraries that PyTorch computes with, to an instruction set.
LEVELS = {
    "avx512": {"UNDERTONE_CPU": "avx512", "ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512",
               "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"},
    "avx2": {"UNDERTONE_CPU": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}


def peers():
    """The Python interpreter of the peers' environment, which is created if necessary."""
    made = subprocess.run([ROOT / "tests/peers/venv"], stdout=subprocess.PIPE, text=True, check=True)
    return made.stdout.strip()


def processor_time():
    """Ticks of all cores so far: busy or stolen ones, and all."""
    with open("/proc/stat") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


# A measurement during which other programs used more than this share of the machine is repeated, up
# to this number of times.
DISTURBED, TRIES = 0.04, 5


class Machine:
    """Runs one command at a time on a number of cores, and records how much of the machine other
    programs used."""

    def __init__(self, threads, cpu=None):
        self.cores = sorted(os.sched_getaffinity(0))[:threads]
        self.environment = os.environ | (LEVELS[cpu] if cpu else {})
        self.disturbed = 0.0
        self.repeated = 0

    def ask_once(self, command):
        """The JSON object that a command prints last, and the share of the machine used by others
        in the meantime."""
        (busy, ticks), before = processor_time(), os.times()
        done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=self.environment, preexec_fn=lambda: os.sched_setaffinity(0, self.cores))
        if done.returncode != 0:
            sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stderr}")
        (busy_after, ticks_after), after = processor_time(), os.times()
        own = (after.children_user + after.children_system - before.children_user - before.children_system) * os.sysconf("SC_CLK_TCK")
        disturbed = (busy_after - busy - own) / max(ticks_after - ticks, 100)
        return disturbed, json.loads(done.stdout.strip().splitlines()[-1])

    def ask(self, command):
        """The result of the least disturbed of a few attempts."""
        best = self.ask_once(command)
        for _ in range(TRIES - 1):
            if best[0] <= DISTURBED:
                break
            self.repeated += 1
            best = min(best, self.ask_once(command), key=lambda answer: answer[0])
        self.disturbed = max(self.disturbed, best[0])
        return best[1]

    def in_turn(self, commands, rounds):
        """The results of each command, one per round."""
        commands = list(commands)
        return list(zip(*[[self.ask(command) for command in commands] for _ in range(rounds)]))

    def start(self, command):
        """A process that waits for requests, on the same cores."""
        return OnRequest(command, self.cores, self.environment)

    def disturbance(self):
        return (f"\nOther processes and the host took at most {self.disturbed:.0%} of the machine during a measurement that counts; "
                f"{self.repeated} were taken again.")


class OnRequest:
    """A process that does one unit of work per input line and answers with one line of JSON.
    Several of them can alternate within seconds, so that slow periods of the machine affect all of
    them."""

    # A peer's threads keep spinning for a while after its work; this must not slow down the next
    # one.
    REST = 0.3

    def __init__(self, command, cores, environment):
        self.command = [str(part) for part in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env=environment, preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def ask(self):
        time.sleep(self.REST)
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"ended: {' '.join(self.command)}")
        return json.loads(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait()
