"""Processes of a test: those that descend from one, and the addresses that they listen on."""

import os
import signal
import time
from pathlib import Path

_LISTENING = "0A"
_LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


def descendants(pid):
    """Return the processes below one, with their command lines."""
    parents, commands = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                commands[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            parents[int(folder.name)] = int(status[1])
    found, new = set(), {pid}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return {one: commands.get(one, "") for one in found}


def outside_listeners(pid):
    """Return the number of sockets on which a process and its descendants listen, and those that others can reach."""
    inodes = set()
    for one in descendants(pid):
        try:
            links = [os.readlink(link) for link in Path(f"/proc/{one}/fd").iterdir()]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    listening = []
    for name in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
        listening += [row[1] for row in rows if row[3] == _LISTENING and row[9] in inodes]
    return len(listening), [one for one in listening if one.partition(":")[0] not in _LOOPBACK]


def kill_one(pid, name):
    """Kill a descendant whose command line has a name; return whether there was one."""
    victims = [one for one, command in descendants(pid).items() if name in command and one != pid]
    for victim in victims[:1]:
        os.kill(victim, signal.SIGKILL)
    return bool(victims)


def wait_for(condition, seconds=240):
    """Wait until a condition holds; fail if it never does."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)
    return found
