#!/usr/bin/env python3
"""`tailrace run` in jobs of a real Slurm, on three nodes of the test bed (README.md beside this file).

    slurm_test.py --build build/mpich [--keep]

The program is examples/heat.c, started by srun. The first job's agents carry its epochs, and are started by srun, too.
The other jobs have plain ones. In turn:

    1  a node crashes: the job (sbatch --no-kill) goes on with the two that are left
    2  the job gets its end signal: the program ends, and the nodes are drained
    3  another job goes on from there, is requeued by Slurm, and ends with the bits of a run that nobody disturbed

No start may go on from anything older than the newest epoch that was complete before the fault. Needs root, network
namespaces, MPICH, and Debian's slurmctld, slurmd, slurm-client and munge, whose daemons it starts itself.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
NODES = {"n0": "10.77.2.1", "n1": "10.77.2.2", "n2": "10.77.2.3"}  # as the test bed numbers them
STEPS, SIZE = 60000, 192
CONFIGURATION = """ClusterName=testbed
SlurmctldHost=n0
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={top}/munge.socket
CredType=cred/munge
StateSaveLocation={top}/state
SlurmdSpoolDir={top}/spool.%n
SlurmctldPidFile={top}/slurmctld.pid
SlurmdPidFile={top}/slurmd.%n.pid
SlurmctldLogFile={top}/slurmctld.log
SlurmdLogFile={top}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=pmi2
ReturnToService=2
SlurmdTimeout=10
KillWait=20
SelectType=select/cons_tres
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
JOB = """#!/bin/bash
#SBATCH --ntasks-per-node=1 --time=15 --no-kill --requeue --open-mode=append --output={top}/job.%j
export SLURM_CONF={top}/slurm.conf LD_PRELOAD={bed}/polite.so XDG_STATE_HOME={bed}/pfs/state
export TAILRACE_BANDWIDTH_CAP=4MiB TAILRACE_KEEP_SHARED=3 TAILRACE_AGENT_CARRIES={carries}
exec {tool} run --agents {agents} --grace 40s -- srun -n {{slots}} {heat} {bed}/pfs/ck {steps} {size}
"""


class Failure(Exception):
    pass


class Slurm:
    """The test bed with Slurm's daemons on it."""

    def __init__(self, build):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="tailrace-slurm-", dir="/tmp"))
        self.bed = self.top / "bed"
        self.tool, self.heat = build / "tools" / "tailrace", build / "examples" / "heat"
        self.environment = dict(os.environ, TESTBED_DIR=str(self.bed), SLURM_CONF=str(self.top / "slurm.conf"))
        self.daemons = []

    def run(self, *words, check=True):
        done = subprocess.run([str(word) for word in words], env=self.environment, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        if check and done.returncode != 0:
            jobs = "".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in self.top.glob("job.[0-9]*"))
            raise Failure(f"{words}: status {done.returncode}: {done.stdout}{jobs}")
        return done.stdout

    def testbed(self, *words, check=True):
        return self.run(HERE / "testbed", *words, check=check)

    def on_head(self, *words, check=True):
        return self.testbed("exec", "n0", *words, check=check)

    def start(self, *words):
        with open(self.top / f"daemon.{len(self.daemons)}", "wb") as output:
            self.daemons.append(subprocess.Popen([str(word) for word in words], env=self.environment, stdout=output,
                                                 stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL))

    def up(self):
        (self.top / "state").mkdir()
        secret = self.top / "munge"
        secret.mkdir(mode=0o700)
        (secret / "key").write_bytes(os.urandom(1024))
        (secret / "key").chmod(0o400)
        text = CONFIGURATION.format(top=self.top)
        for node, address in NODES.items():
            (self.top / f"spool.{node}").mkdir()
            text += f"NodeName={node} NodeAddr={address} CPUs=2 State=UNKNOWN\n"
        (self.top / "slurm.conf").write_text(text)
        for agents, carries in (("carry", "yes"), ("plain", "auto")):
            job = JOB.format(top=self.top, bed=self.bed, tool=self.tool, heat=self.heat, steps=STEPS, size=SIZE,
                             agents=agents, carries=carries)
            (self.top / f"{agents}.sh").write_text(job)
        self.testbed("up", "--nodes", len(NODES), "--pfs", "dir", "--nic", 0)
        self.start("munged", "--foreground", "--force", f"--socket={self.top}/munge.socket",
                   f"--key-file={secret}/key", f"--pid-file={self.top}/munged.pid", f"--log-file={self.top}/munged.log",
                   f"--seed-file={self.top}/munge.seed")
        self.wait(lambda: (self.top / "munge.socket").exists(), "munged")
        self.start(HERE / "testbed", "exec", "n0", "slurmctld", "-D")
        for node in NODES:
            self.start(HERE / "testbed", "exec", node, "slurmd", "-D")
        self.wait(lambda: re.search(r"\b3 +idle\b", self.on_head("sinfo", check=False)), "Slurm")

    def down(self):
        self.on_head("scancel", "--full", "--user=root", check=False)
        self.testbed("down", check=False)
        for daemon in self.daemons:
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.top, ignore_errors=True)

    def wait(self, condition, what, longest_s=150):
        deadline = time.monotonic() + longest_s
        while not condition():
            if time.monotonic() > deadline:
                jobs = "".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in self.top.glob("job.[0-9]*"))
                raise Failure(f"{what} did not happen within {longest_s} s\n{self.on_head('squeue', check=False)}{jobs}")
            time.sleep(0.2)

    def submit(self, nodes, agents):
        said = self.on_head("sbatch", f"--chdir={self.top}", f"--nodes={nodes}", self.top / f"{agents}.sh")
        return re.search(r"batch job (\d+)", said)[1]

    def said(self, job):
        path = self.top / f"job.{job}"
        return path.read_text(errors="replace") if path.exists() else ""

    def runs(self, job):
        return bool(self.on_head("squeue", "--noheader", "--states=all", "--jobs", job, check=False).strip()) and not re.search(
            r"JobState=(COMPLETED|FAILED|CANCELLED)", self.on_head("scontrol", "show", "job", job, check=False))

    def newest(self):
        if not (self.bed / "pfs" / "ck").is_dir():
            return 0
        listed = json.loads(self.run(self.tool, "ls", "--json", self.bed / "pfs" / "ck"))
        return max((epoch["epoch"] for epoch in listed["epochs"] if epoch["state"] == "complete"), default=0)

    def need(self, job, pattern):
        if not (match := re.search(pattern, self.said(job))):
            raise Failure(f"job {job} does not say {pattern!r}:\n{self.said(job)}")
        return match


def expected_sum(slurm):
    scratch = dict(slurm.environment, TAILRACE_LOCAL_DIR=str(slurm.top / "local"), XDG_STATE_HOME=str(slurm.top / "state.0"),
                   TAILRACE_KEEP_SHARED="1")
    done = subprocess.run([slurm.heat, slurm.top / "alone", str(STEPS), str(SIZE)], env=scratch, check=True, text=True,
                          stdout=subprocess.PIPE, timeout=300)
    return re.search(r"sum up to (\w+)", done.stdout)[1]


def not_older(went_on, newest, when):
    if int(went_on) < newest:
        raise Failure(f"{when}: it went on from epoch {went_on}, but epoch {newest} was complete")
    print(f"slurm: {when}: newest complete {newest}, went on from {went_on}", flush=True)


def test(slurm):
    job = slurm.submit(3, "carry")
    slurm.wait(lambda: slurm.newest() > 600, "an epoch")
    newest = slurm.newest()
    slurm.testbed("fault", "crash", "n2")
    slurm.wait(lambda: "attempt 1" in slurm.said(job), "the end of the first attempt")
    slurm.need(job, r"node n2 is left out")
    if "no agents carry" in slurm.said(job):
        raise Failure(f"the agents did not start:\n{slurm.said(job)}")
    not_older(slurm.need(job, r"attempt 1: .* on 3 nodes; it goes on from epoch (\d+)")[1], newest, "a node crashed")
    slurm.wait(lambda: slurm.newest() > newest + 600, "an epoch of the second attempt")
    newest = slurm.newest()
    slurm.on_head("scancel", "--signal=TERM", "--batch", job)
    slurm.wait(lambda: not slurm.runs(job), "the end of the job")
    found = slurm.need(job, r"attempt 2: .* on 2 nodes; not started again: it was asked to end; it would go on from epoch (\d+)")
    not_older(found[1], newest, "the job was asked to end")

    newest = slurm.newest()  # with what the drain has committed
    job = slurm.submit(2, "plain")
    slurm.wait(lambda: slurm.newest() > newest + 400, "an epoch of the second job")
    newest = slurm.newest()
    slurm.on_head("scontrol", "requeue", job)
    slurm.wait(lambda: "PENDING" in slurm.on_head("scontrol", "show", "job", job), "the requeue")
    slurm.on_head("scontrol", "update", f"JobId={job}", "StartTime=now")
    slurm.wait(lambda: not slurm.runs(job), "the end of the requeued job", 300)
    went_on = re.findall(r"going on from step (\d+)", slurm.said(job))
    if len(went_on) == 0:
        raise Failure(f"the job does not say where it went on from:\n{slurm.said(job)}")
    not_older(went_on[-1], newest, "the job was requeued")
    # A start that is asked to stop says the sum as well, of the step that it has come to.
    if slurm.need(job, rf"after {STEPS} steps the plate's bits sum up to (\w+)")[1] != expected_sum(slurm):
        raise Failure("the bits are not those of a run that nobody disturbed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--keep", action="store_true", help="leave everything as it is, to look at")
    options = parser.parse_args()
    missing = [name for name in ("slurmctld", "slurmd", "srun", "munged") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print(f"slurm: not run: {'this is not root' if not missing else 'there is no ' + ', '.join(missing)}")
        return 77
    slurm = Slurm(options.build.resolve())
    try:
        slurm.up()
        test(slurm)
    except Failure as failure:
        print(f"slurm: FAILED: {failure}")
        return 1
    finally:
        if not options.keep:
            slurm.down()
    print("slurm: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
