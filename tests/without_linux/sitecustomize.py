"""On PYTHONPATH, this makes Python find about as little of Linux as it does on macOS.

What it hides raises when it is touched, as there: a rank or agent that needs it ends in a traceback.
"""

import builtins
import io
import os
import signal
import sys
import sysconfig
import types

for name in ("sched_getaffinity", "sched_setaffinity", "posix_fallocate", "fork", "forkpty"):
    delattr(os, name)
del signal.SIGRTMIN, signal.SIGRTMAX
signal.SIGINFO = signal.SIGPWR  # a signal that macOS has: one here that nobody uses


def hide(function):
    def look(path, *arguments, **options):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "not on this system", path)
        return function(path, *arguments, **options)

    return look


os.listdir, os.scandir, os.stat = hide(os.listdir), hide(os.scandir), hide(os.stat)
builtins.open = io.open = hide(io.open)
sysconfig.get_config_vars()  # from a file that is named after the platform
sys.platform = "darwin"
# macOS's Python has this module.
sys.modules["_scproxy"] = types.SimpleNamespace(_get_proxy_settings=dict, _get_proxies=dict)
