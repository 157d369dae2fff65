import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from browser.fixtures import descendants, is_gone
from clocks import PATIENT_S
from focusmem.worker_processes import worker_processes
from shared_work import fail


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_they_end_with_the_one_that_started_them(tmp_path, how):
    script = Path(__file__).with_name("shared_work.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script), str(tmp_path)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, process_group=0) as process:
        while len(list(tmp_path.iterdir())) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        left = descendants(process.pid)
        assert len(left) >= 2
        if how == signal.SIGINT:
            os.killpg(process.pid, how)  # as a terminal does
        else:
            process.send_signal(how)
        told = process.communicate(timeout=PATIENT_S)[1]
    assert all(is_gone(pid) for pid in left)
    assert told == ("stopped\n" if how == signal.SIGINT else "")


def test_what_the_user_can_mend_is_a_line(capfd):
    with worker_processes(fail, 2) as processes:
        for process in processes:
            process.join()
    assert [process.exitcode for process in processes] == [0, 2]
    assert capfd.readouterr().err == "focusmem: The disk is full.\n"
