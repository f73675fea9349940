"""What all tests need of the process that runs them."""

import signal

# A shell starts what it runs in the background with Ctrl-C ignored, and children inherit that: the tests of
# Ctrl-C would then send it into the void.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
