"""Starts one side of a row as a process, waits for it, and reads what it printed, when its first step began and had finished and
how much memory it took at most."""
import json
import os
import subprocess
import tempfile
import time

KEEP_FREED = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}


def our_environment(plugins):
    """Threads wait with a short spin, as those of the program `tenon` do unless the user chose otherwise."""
    environment = {**os.environ, "TENON_PLUGIN_PATH": str(plugins)}
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "2000")
    return environment


def peer_environment(tuned, preload=None):
    """Environments of PyTorch: as it comes, or with malloc told to keep freed memory and other tuning."""
    environment = {name: value for name, value in os.environ.items() if name not in KEEP_FREED}
    if tuned:
        environment.update(KEEP_FREED)
        if preload:
            environment["LD_PRELOAD"] = preload
    return environment


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing was printed"


def figures_in(text):
    """The JSON object among the lines, and the first line as a number under `first` where it is one."""
    found = {}
    lines = text.splitlines()
    try:
        found["first"] = float(lines[0])
    except (IndexError, ValueError):
        pass
    for line in lines:
        if line.startswith("{"):
            found.update(json.loads(line))
    return found


def run(command, environment=None, deadline=900):
    """Figures that the command prints, with `memory_mb` and, where it says when its first step began and ended, the seconds since it was
    started as `first_slot_s` and `first_step_s`; or `error`, with `late_after_s` where the command was stopped."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as complaints:
        begin = time.monotonic()
        try:
            child = subprocess.Popen(command, stdout=out, stderr=complaints, env=environment, start_new_session=True)
        except OSError as error:
            return {"error": f"{command[0]}: {error.strerror}"}
        usage = wait(child, begin + deadline)
        if usage is None:
            return {"error": f"{os.path.basename(command[0])} was stopped after {deadline:g} s", "late_after_s": deadline}
        status, used = usage
        out.seek(0)
        complaints.seek(0)
        if status != 0:
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            return {"error": f"{os.path.basename(command[0])}: {how}: {last_line(complaints.read())}"}
        found = figures_in(out.read())
    found["memory_mb"] = used.ru_maxrss / 1e3 * 1.024
    for moment in ("first_slot", "first_step"):
        if f"{moment}_at" in found:
            found[f"{moment}_s"] = found[f"{moment}_at"] - begin
    return found


def wait(child, until):
    """(exit status, resources) of the child, which is killed with its group when it is late: then None."""
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid != 0:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode, usage
        if time.monotonic() > until:
            os.killpg(child.pid, 9)
            child.wait()
            return None
        time.sleep(0.002)
