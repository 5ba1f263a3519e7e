"""Free ports, chosen at the moment of their use."""

import os
import socket
import time
from contextlib import ExitStack

PATIENCE_SECONDS = 120


def free_ports(count):
    """So many different free ports of this machine."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def meet(rank, file):
    """Set the port of the next process group: rank 0 chooses it and tells the others in a file."""
    if rank == 0:
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(str(free_ports(1)[0]))
        unfinished.replace(file)
    patience = time.monotonic() + PATIENCE_SECONDS
    while not file.exists():
        if time.monotonic() > patience:
            raise TimeoutError(f"{file}: rank 0 has named no port")
        time.sleep(0.01)
    os.environ["MASTER_PORT"] = file.read_text()
