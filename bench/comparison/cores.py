"""Measures while the cores compute beside each other. Two processors of a virtual machine may for a while be two threads of one core;
what runs on both then takes up to twice as long, and no figure of the system says so. The program `cores` finds out by computing."""

from . import processes

APART = 1.25  # a thread takes at most so many times as long beside the others as alone
TRIES = 3     # of a measurement


class Cores:
    """run(seconds to wait): what the program `cores` printed, or a dictionary with `error`. Where the cores are not apart once within
    `most_s`, they are taken to be so always, and nothing waits any more."""

    def __init__(self, run, most_s):
        self.run, self.most_s, self.shared_always, self.error = run, most_s, False, ""

    def at_once(self, most_s=0):
        found = {} if self.error else self.run(most_s)
        self.error = self.error or found.get("error", "")
        return found.get("at_once")

    def waits(self):
        return self.most_s > 0 and not self.shared_always and not self.error

    def measured(self, take):
        """What take() returns, with `at_once`: the larger of before and after. It is taken again, up to TRIES times in all, where the cores
        were not apart afterwards; the last counts."""
        for _ in range(TRIES):
            before = self.at_once(self.most_s if self.waits() else 0)
            if before is not None and before > APART and self.waits():
                self.shared_always = True
            found = take()
            ratios = [ratio for ratio in (before, self.at_once()) if ratio is not None]
            if ratios and "error" not in found:
                found = {**found, "at_once": max(ratios)}
            if not self.waits() or "error" in found or max(ratios, default=0) <= APART:
                break
        return found

    def notes(self):
        """What a reader has to know of all figures."""
        if self.error:
            return [f"whether the cores compute beside each other is not known: {self.error}"]
        if self.shared_always:
            return [f"the cores were not apart within {self.most_s:g} s: a thread takes more than {APART:g} times as long beside the others "
                    "as alone, and figures are those of shared cores"]
        return []


def doubt(samples):
    """Why figures from these samples are doubtful; empty where they are not."""
    ratios = [sample["at_once"] for sample in samples if sample.get("at_once")]
    bad = sum(ratio > APART for ratio in ratios)
    return f"in {bad} of {len(ratios)} measurements the cores were shared (threads took up to {max(ratios):.1f} times as long)" if bad else ""


def of_build(build, threads, most_s):
    """By the program in the build folder."""
    program = str(build / "bench" / "cores")
    return Cores(lambda seconds: processes.run([program, str(threads), str(seconds)], deadline=seconds + 60), most_s)
