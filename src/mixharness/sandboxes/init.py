"""PID 1 of every sandbox: confines itself, then starts programs and opens sockets on the host's orders, reaps, kills.

It runs inside, from the image's own python (`-I -S`), so it imports only modules that cost little to load. Every other
process is its descendant and inherits the confinement: uid 1000, no capability, no new privileges, a system call
filter. It is not dumpable: no program of the same uid can trace it, open its descriptors or change its limits. It
ends, and its pid namespace with it, when the host closes the control socket or dies.

    argv: fd:N | PATH of a SOCK_SEQPACKET unix socket, UID, GID, HOME, WORKDIR,
          FILTER (a file of BPF instructions)

    host → init                                             init → host
                                                            hello | failed REASON
    exec ID      + fds (request, stdin, stdout, stderr)     exit ID STATUS | fail ID REASON
    kill ID                                                 done ID
    listen ID PORT                                          done ID + fd (a listening socket) | fail ID REASON

Fields are separated by NUL. A request is a file: argc, argv…, then the environment as NAME=VALUE.
STATUS is the exit code, or minus the signal that ended the program.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import ctypes
import os
import select
import sys

BACKLOG = 128
KILL_ROUNDS, KILL_PAUSE_MS = 2000, 2
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 22, 24, 38, 47
SECCOMP_MODE_FILTER, PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
CAPABILITY_VERSION_3 = 0x20080522
INSTRUCTION_BYTES = 8


class Init:
    """The state of the loop: the control socket and which pid answers which request."""

    def __init__(self, control: _socket.socket) -> None:
        self.control = control
        self.running: dict[int, bytes] = {}

    def serve(self) -> None:
        wake_in, wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake_in, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == wake_in:
                    os.read(wake_in, 4096)
                    self.reap()
                elif not self.obey():
                    return

    def obey(self) -> bool:
        message, ancillary, _, _ = self.control.recvmsg(4096, 4096, _socket.MSG_CMSG_CLOEXEC)
        if not message:
            return False
        fds = [fd for _, _, data in ancillary for fd in memoryview(data).cast("i")]
        op, ident, *rest = message.split(b"\0")
        try:
            if op == b"exec":
                self.start(ident, fds)
            elif op == b"kill":
                self.kill(ident)
            elif op == b"listen":
                self.listen(ident, int(rest[0]))
        except OSError as error:
            self.say(b"fail", ident, str(error).encode())
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def say(self, *fields: bytes, fd: int | None = None) -> None:
        rights = [] if fd is None else [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fd.to_bytes(4, sys.byteorder))]
        self.control.sendmsg([b"\0".join(fields)], rights)

    def start(self, ident: bytes, fds: list[int]) -> None:
        request, *standard = fds
        fields = os.pread(request, os.fstat(request).st_size, 0).split(b"\0")
        count = int(fields[0])
        argv, env = fields[1 : count + 1], fields[count + 1 :]
        pid = os.fork()
        if pid == 0:
            become(argv, dict(pair.split(b"=", 1) for pair in env), standard)
        self.running[pid] = ident

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ident = self.running.pop(pid, None)
            if ident is not None:
                self.say(b"exit", ident, b"%d" % os.waitstatus_to_exitcode(status))

    def kill(self, ident: bytes) -> None:
        """Everything dies, and is gone when this is answered; what the kernel holds back is not waited for."""
        poll = select.poll()
        for _ in range(KILL_ROUNDS):
            try:
                os.kill(-1, _signal.SIGKILL)
            except ProcessLookupError:  # nothing is left
                break
            poll.poll(KILL_PAUSE_MS)
            self.reap()
        self.say(b"done", ident)

    def listen(self, ident: bytes, port: int) -> None:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        try:
            listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(BACKLOG)
            self.say(b"done", ident, fd=listener.fileno())
        finally:
            listener.close()


def become(argv: list[bytes], env: dict[bytes, bytes], standard: list[int]) -> None:
    """Turns this fork into the program; never returns."""
    try:
        os.setsid()
        for number, fd in enumerate(standard):
            os.dup2(fd, number)
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGCHLD):
            _signal.signal(number, _signal.SIG_DFL)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, b"cannot start %s: %s\n" % (argv[0], os.strerror(error.errno or 0).encode()))
        os._exit(127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126)
    finally:
        os._exit(126)


def confine(uid: int, gid: int, home: str, filter_path: str) -> None:
    """Gives up for good everything a sandboxed program must not have; raises OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prctl(*arguments: int) -> None:
        if libc.prctl(*(ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:5])):
            raise OSError(ctypes.get_errno(), "prctl" + repr(arguments))

    if os.geteuid() == 0:
        os.chown(home, uid, gid)
        with open("/proc/sys/kernel/cap_last_cap", "rb") as file:
            last = int(file.read())
        for capability in range(last + 1):
            prctl(PR_CAPBSET_DROP, capability)
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    with open(filter_path, "rb") as file:
        code = ctypes.create_string_buffer(file.read())
    count = (len(code) - 1) // INSTRUCTION_BYTES
    program = (ctypes.c_ulong * 2)(count, ctypes.addressof(code))  # struct sock_fprog on little-endian machines
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program))
    prctl(PR_SET_DUMPABLE, 0)


def connect(address: str) -> _socket.socket:
    if address.startswith("fd:"):
        control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, int(address[3:]))
    else:
        control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        control.connect(address)
    os.set_inheritable(control.fileno(), False)
    return control


def main(address: str, uid: str, gid: str, home: str, workdir: str, filter_path: str) -> None:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # which PID 1 ignores; Python's own handler would end it
    init = Init(connect(address))
    try:
        confine(int(uid), int(gid), home, filter_path)
        os.chdir(workdir)
    except OSError as error:
        init.say(b"failed", str(error).encode())
        return
    init.say(b"hello")
    init.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
