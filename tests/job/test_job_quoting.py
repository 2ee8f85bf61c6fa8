"""Whatever a value holds, it reaches the program as exactly that value, or is refused."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given, settings
from job_support import planned, rendered, run_stubbed, surroundings

from hostile import CONTROL, HOSTILE
from seatrial.base.errors import InputError
from seatrial.job.plan import plan
from seatrial.job.render import render
from seatrial.job.request import Request
from seatrial.job.template import load_template, load_templates

#: saves its arguments, each ended by a NUL, behind those of earlier calls
RECORD = 'printf "%s\\0" "$@" >>"$OUT/arguments"'
#: template -> (values besides the program, arguments that follow the program's)
TEMPLATES = {
    "mpi": ({}, []),
    "hybrid": ({}, []),
    "multirail": ({"interfaces": "eth1 eth2"}, []),
    "npb": ({}, []),
    "osu": ({}, ["-m", "1048576", "-i", "1000", "-x", "100"]),
    "hpl": ({"blas": "openblas"}, []),
    "all-pairs": ({"arguments": "1"}, ["1"]),
}


def test_every_template_is_tried():
    assert set(TEMPLATES) == set(load_templates())


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=10, deadline=None)
@given(word=HOSTILE, job=HOSTILE, account=HOSTILE, folder=HOSTILE)
def test_rendered_job_runs_with_exactly_the_arguments_given(
    tmp_path_factory, name, word, job, account, folder
):
    folder_of_test = tmp_path_factory.mktemp("job")
    further, behind = TEMPLATES[name]
    values = {
        **further, "program": f"./ship {shlex.quote(word)}", "job_name": job, "account": account,
        "module": "x" + folder, "module_folder": folder,
    }  # fmt: skip
    if any(re.search(CONTROL, text) for text in (job, account)):
        with pytest.raises(InputError, match="control character"):
            rendered(name, values=values)
        return
    job_plan = planned(name, values=values)
    text = render(job_plan, [])
    stubs = {"srun": RECORD, "scontrol": "printf 'n1\\nn2\\n'"}
    done = run_stubbed(text, folder_of_test, stubs, SLURM_NTASKS=str(job_plan.ranks))
    assert done.returncode == 0, done.stderr
    arguments = (folder_of_test / "arguments").read_bytes().decode().split("\0")[:-1]
    wanted = ["./ship", word, *behind]
    assert arguments[-len(wanted) :] == wanted
    made = {path.name for path in folder_of_test.iterdir()} - {"pairs-7", "hpl-7"}
    assert made == {"arguments", "bin", "job.sh"}


def test_a_template_of_ones_own_that_does_not_quote_is_named(tmp_path):
    text = '{%#\ndescription: mine\n#%}\nsrun {{ program }} "{{ nodes | number }}"\n'
    (tmp_path / "mine.sbatch.j2").write_text(text)
    request = Request(load_template("mine", tmp_path))
    with pytest.raises(InputError, match=r"mine\.sbatch\.j2:4: .*quoting filter.* sh"):
        render(plan(request, surroundings()), [], tmp_path)
