"""The pipelines in ci/pipelines: valid for who reads them, and right in what they run."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from crontab import CronTab
from groovy_parser.parser import parse_groovy_content
from ruamel.yaml import YAML

from seatrial.base.paths import CHECKOUT

PIPELINES = CHECKOUT / "ci" / "pipelines"
INSTALLED = "/opt/seatrial"
TRIAL = "trial --site harbour"
NOTIFY = "history notify --site harbour"


def text_of(name: str) -> str:
    return (PIPELINES / name).read_text()


# --- valid for who reads them ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "schema"),
    [("gitlab-ci.yml", "vendor.gitlab-ci"), ("github-workflow.yml", "vendor.github-workflows")],
)
def test_it_is_valid_by_the_schema_of_its_server(name, schema, tmp_path):
    program = Path(sys.executable).with_name("check-jsonschema")

    def check(file: Path) -> int:
        command = [program, "--no-cache", "--builtin-schema", schema, file]
        return subprocess.run(command, capture_output=True).returncode

    assert check(PIPELINES / name) == 0
    broken = tmp_path / name
    broken.write_text(text_of(name).replace("script:", "scripts:").replace("runs-on:", "run-on:"))
    assert check(broken) == 1


def test_the_jenkinsfile_is_groovy():
    parse_groovy_content(text_of("Jenkinsfile"))


def test_systemd_accepts_the_units(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is missing: apt-get install systemd")
    files = []
    for name in ("seatrial.service", "seatrial.timer"):
        files.append(tmp_path / name)
        # systemd also looks for the program.
        files[-1].write_text(text_of(name).replace(f"{INSTALLED}/seatrial", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *files], capture_output=True, text=True,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )  # fmt: skip
    about = [line for line in done.stderr.splitlines() if "seatrial." in line]
    assert (done.returncode, about) == (0, [])
    when = re.search("OnCalendar=(.*)", text_of("seatrial.timer"))
    assert when
    subprocess.run(["systemd-analyze", "calendar", when[1]], check=True, capture_output=True)


def cron_job():
    (job,) = CronTab(tabfile=str(PIPELINES / "seatrial.cron"), user=False)
    return job


def test_cron_accepts_its_line():
    job = cron_job()
    assert job.is_valid()
    assert (job.user, str(job.slices)) == ("seatrial", "0 1 * * *")
    assert "%" not in job.command  # cron makes it the end of a line
    assert job.env["SHELL"] == "/bin/sh"


def scrontab_job():
    (job,) = CronTab(tabfile=str(PIPELINES / "seatrial.scrontab"))
    return job


def test_the_line_of_scrontab_is_one_of_cron_with_options_of_sbatch():
    job = scrontab_job()
    assert job.is_valid()
    assert (job.user, str(job.slices)) == (None, "0 1 * * *")
    lines = text_of("seatrial.scrontab").splitlines()
    assert lines[-1] == f"0 1 * * * {job.command}"  # Slurm takes no line that goes on in the next
    options = [line.removeprefix("#SCRON ") for line in lines if line.startswith("#SCRON")]
    assert all(re.fullmatch("--[a-z-]+=[^ =]+", option) for option in options)
    named = dict(option.split("=") for option in options)
    assert {"--partition", "--time", "--mail-type"} <= set(named)
    assert named["--output"] == f"{INSTALLED}/nightly.log"


def test_scrontab_hides_its_own_job_from_the_jobs_of_the_trial(tmp_path):
    """sbatch exports them, and srun in the job would read SLURM_MEM_PER_CPU of the outer one."""
    program(tmp_path / "seatrial", f"#!/bin/sh\n[ $1 = history ] || env > {tmp_path}/env\n")
    ways = Ways(tmp_path / "seatrial")
    ways.env |= {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "2000", "SLURM_CONF": "/etc/other.conf"}
    assert ways.scrontab() == 0
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert [name for name in seen if name.startswith("SLURM_")] == ["SLURM_CONF"]
    assert {"/usr/sbin", "/sbin", *os.environ["PATH"].split(":")} <= set(seen["PATH"].split(":"))


def test_cron_and_systemd_find_the_programs_of_administrators():
    """Cron's own path has neither ip and ethtool nor what a site installs in /usr/local."""
    paths = [
        cron_job().env["PATH"],
        re.search("Environment=PATH=(.*)", text_of("seatrial.service")),
    ]
    assert paths[1]
    assert paths[0] == paths[1][1]
    assert {"/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} <= set(paths[0].split(":"))


# --- right in what they run --------------------------------------------------------------


class Ways:
    """How each pipeline runs a night, with Seatrial in another folder; the exit code."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.env = {"PATH": os.environ["PATH"]}

    def begun(self, words: list[str], script: str, **env: str) -> subprocess.Popen[str]:
        script = script.replace(INSTALLED, str(self.folder))
        env = {name: text.replace(INSTALLED, str(self.folder)) for name, text in env.items()}
        work = self.folder.parent / "work"
        work.mkdir(exist_ok=True)
        return subprocess.Popen(
            [*words, script], cwd=work, env={**self.env, **env}, text=True, stdout=subprocess.PIPE
        )

    def shell(self, words: list[str], script: str, **env: str) -> int:
        with self.begun(words, script, **env) as process:
            process.communicate()
        return process.returncode

    def gitlab(self) -> int:
        job = YAML(typ="safe").load(text_of("gitlab-ci.yml"))["seatrial"]
        script = "\n".join(["set -eo pipefail", *job["script"]])
        return self.shell(["bash", "-c"], script, **job["variables"])

    def github(self) -> int:
        job = YAML(typ="safe").load(text_of("github-workflow.yml"))["jobs"]["nightly"]
        return self.shell(["bash", "-e", "-c"], job["steps"][0]["run"], **job["env"])

    def cron(self) -> int:
        with self.cron_begun() as process:
            process.communicate()
        return process.returncode

    def cron_begun(self) -> subprocess.Popen[str]:
        job = cron_job()
        return self.begun([job.env["SHELL"], "-c"], job.command, PATH=job.env["PATH"])

    def scrontab(self) -> int:
        with self.scrontab_begun() as process:
            process.communicate()
        return process.returncode

    def scrontab_begun(self) -> subprocess.Popen[str]:
        """Slurm makes a script for /bin/sh of the line, and starts it in the user's home."""
        return self.begun(["/bin/sh", "-c"], scrontab_job().command)

    def systemd(self) -> int:
        """Systemd itself starts no unit that runs."""
        unit = configparser.ConfigParser(interpolation=None)
        unit.read(PIPELINES / "seatrial.service")
        service = unit["Service"]
        codes = []
        for name in ("ExecStart", "ExecStopPost"):  # the second always
            command = shlex.split(service[name].replace(INSTALLED, str(self.folder)))
            folder = service["WorkingDirectory"].replace(INSTALLED, str(self.folder))
            codes.append(subprocess.run(command, cwd=folder, env=self.env).returncode)
        return codes[1] or codes[0]


WAYS = ("gitlab", "github", "cron", "scrontab", "systemd")


def program(folder: Path, text: str) -> None:
    folder.mkdir()
    file = folder / "seatrial"
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def ways(tmp_path: Path) -> Ways:
    """With a false Seatrial, which notes its calls and ends with given exit codes."""
    program(
        tmp_path / "seatrial",
        f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n'
        f'case $1 in\nhistory) exit $(cat {tmp_path}/notify);;\n'
        f'report) mkdir -p report; exit $(cat {tmp_path}/trial);;\n'
        f"*) exit $(cat {tmp_path}/trial);;\nesac\n",
    )  # fmt: skip
    return Ways(tmp_path / "seatrial")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("trial", range(5))
@pytest.mark.parametrize("notify", [0, 4])
def test_the_exit_code_is_that_of_the_trial_and_people_get_the_message_always(
    ways, tmp_path, way, trial, notify
):
    (tmp_path / "trial").write_text(str(trial))
    (tmp_path / "notify").write_text(str(notify))
    assert getattr(ways, way)() == (notify or trial)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call for call in calls if not call.startswith("report")] == [TRIAL, NOTIFY]
    reported = "report --output report" in calls
    # After bad input or a failure of Slurm, the newest trial is an older one.
    assert reported == (way in ("gitlab", "github") and trial <= 2)


@pytest.mark.parametrize("way", ["cron", "scrontab"])
def test_two_nights_of_cron_do_not_overlap(ways, tmp_path, way):
    """Also if the first has left a program behind."""
    begin = getattr(ways, f"{way}_begun")
    (tmp_path / "trial").write_text("0")
    (tmp_path / "notify").write_text("0")
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    seatrial = tmp_path / "seatrial" / "seatrial"
    once = f"if mkdir {tmp_path}/begun; then sleep 600 & echo $! > {tmp_path}/left; cat {go_on}; fi"
    seatrial.write_text(seatrial.read_text().replace("*) ", f"*) {once}; "))
    with begin() as first:
        with go_on.open("w"):  # the first has begun
            with begin() as second:
                said, _ = second.communicate()
            assert second.returncode == 4
            assert said == "no trial tonight: that of an earlier night still runs\n"
        assert first.wait() == 0
    try:
        assert getattr(ways, way)() == 0
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [TRIAL, NOTIFY, TRIAL, NOTIFY]


def test_an_incomplete_trial_is_a_warning_of_gitlab_and_unstable_in_jenkins():
    job = YAML(typ="safe").load(text_of("gitlab-ci.yml"))["seatrial"]
    assert job["allow_failure"] == {"exit_codes": [2]}
    text = text_of("Jenkinsfile")
    assert re.search(r"if \(code == 2\) \{\s+unstable\(.*\)\s+\} else if \(code != 0\) \{", text)
    assert re.search(r"//.*\s+error\(", text)


def test_jenkins_runs_the_same_commands():
    text = text_of("Jenkinsfile").replace("$SITE", "harbour")
    commands = re.findall(r"\$SEATRIAL ([^']+)'", text)
    assert commands == [TRIAL, "report --output report || true", NOTIFY]
    assert f"SEATRIAL = '{INSTALLED}/seatrial'" in text


@pytest.mark.parametrize("name", ["gitlab-ci.yml", "github-workflow.yml", "Jenkinsfile"])
def test_a_report_is_where_the_server_looks_for_it(name):
    text = text_of(name)
    assert "report/" in text
    assert "rm -rf report" in text  # of the run before
    if name != "github-workflow.yml":
        assert "report/junit.xml" in text


# --- five nights -------------------------------------------------------------------------

SEATRIAL = """#!{python}
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {source!r}]
trials = Path({trials!r})
if sys.argv[1] == "trial":
    from history_support import NETPIPE, make_night, runs_of
    number = len(list(trials.glob("lab-*")))
    factor = 1.2 if number >= 2 else 1  # planted: a coalescing value, on the third night
    values = [30 * factor * (1 + (number * 7 + repeat * 3) % 5 / 500) for repeat in range(3)]
    runs = runs_of(NETPIPE, "latency_us", values, versions={{"driver of eth1": f"igb {{factor}}"}})
    make_night(trials, number, runs=runs, site="harbour")
else:
    from seatrial.cli import main
    sys.argv += ["--trials", str(trials)]
    main()
"""


def test_five_nights_with_a_change_on_the_third(tmp_path):
    """One message has it, with its night and what changed with it."""
    trials, sent = tmp_path / "trials", tmp_path / "sent"
    trials.mkdir()
    paths = {"tests": str(CHECKOUT / "tests"), "source": str(CHECKOUT / "src")}
    script = SEATRIAL.format(python=sys.executable, trials=str(trials), **paths)
    program(tmp_path / "seatrial", script)
    site = tmp_path / "sites" / "harbour"
    shutil.copytree(CHECKOUT / "site-configs" / "lab", site)
    file = site / "site.yaml"
    command = f"\ntrial:\n  notify: [sh, -c, 'cat >> {sent}']\n"
    text = file.read_text().replace("\ntrial:\n", command)
    file.write_text(re.sub("^name: lab$", "name: harbour", text, flags=re.MULTILINE))
    ways = Ways(tmp_path / "seatrial")
    ways.env["SEATRIAL_SITES"] = str(tmp_path / "sites")
    lengths = []
    for run in (ways.cron, ways.systemd, ways.cron, ways.systemd, ways.cron):
        assert run() == 0
        lengths.append(len(sent.read_text().splitlines()) if sent.exists() else 0)
    assert lengths[1] == 0
    assert lengths[-1] == 3
    first, change, _ = sent.read_text().splitlines()
    assert first.startswith("harbour: 1 change, verdict accept, trial lab-00")
    assert change.startswith("netpipe.tcp.default.2n: latency_us: worse by 20 %")
    assert change.endswith(
        ", since 2026-08-03; changed that night: driver of eth1 igb 1 -> igb 1.2"
    )
