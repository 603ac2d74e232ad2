"""Reads the power of the whole machine from its management controller (DCMI's Get Power Reading) without waiting."""

import ctypes
import errno
import fcntl
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from monitors.power import PowerMeter, Reading, who_may
from monitors.sampler import Unavailable

BMC_CHANNEL = 0x0F
SYSTEM_INTERFACE = 0x0C  # address type: the controller of this machine
RESPONSE = 1  # recv_type of an answer to a command of ours
ANSWER_BYTES = 256

Ioctl = Callable[[int, int, ctypes.Structure], object]


class _Address(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("channel", ctypes.c_short), ("lun", ctypes.c_ubyte))


class _Message(ctypes.Structure):
    _fields_ = (
        ("netfn", ctypes.c_ubyte),
        ("command", ctypes.c_ubyte),
        ("length", ctypes.c_ushort),
        ("data", ctypes.c_void_p),
    )


class _Request(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_void_p),
        ("address_length", ctypes.c_uint),
        ("id", ctypes.c_long),
        ("message", _Message),
    )


class _Received(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), *_Request._fields_)


def _number(direction: int, command: int, argument: type[ctypes.Structure]) -> int:
    """Linux's ioctl numbers (asm-generic/ioctl.h): direction, size of the argument, the driver's letter, command."""
    return direction << 30 | ctypes.sizeof(argument) << 16 | ord("i") << 8 | command


SEND_COMMAND = _number(2, 13, _Request)
RECEIVE_TRUNCATED = _number(3, 11, _Received)


class IpmiDevice:
    """One command at a time to the controller of this machine.

    Raises:
        OSError: the device cannot be opened.
    """

    def __init__(self, path: Path, ioctl: Ioctl = fcntl.ioctl) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._ioctl = ioctl
        self._id = 0

    def send(self, netfn: int, command: int, data: bytes) -> None:
        """Start a command; an answer to an earlier one is dropped from now on.

        Raises:
            OSError: the device refuses the command.
        """
        self._id += 1
        address = _Address(SYSTEM_INTERFACE, BMC_CHANNEL, 0)
        buffer = ctypes.create_string_buffer(data, len(data))
        message = _Message(netfn, command, len(data), ctypes.addressof(buffer))
        request = _Request(ctypes.addressof(address), ctypes.sizeof(address), self._id, message)
        self._ioctl(self._descriptor, SEND_COMMAND, request)

    def receive(self) -> bytes | None:
        """The answer to the last command, its completion code first; None until it arrives.

        Raises:
            OSError: the device cannot be read.
        """
        while select.select([self._descriptor], [], [], 0)[0]:
            address, buffer = _Address(), ctypes.create_string_buffer(ANSWER_BYTES)
            message = _Message(0, 0, ANSWER_BYTES, ctypes.addressof(buffer))
            received = _Received(0, ctypes.addressof(address), ctypes.sizeof(address), 0, message)
            try:
                self._ioctl(self._descriptor, RECEIVE_TRUNCATED, received)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EINTR):
                    return None
                if error.errno != errno.EMSGSIZE:  # longer than the buffer: its beginning was read
                    raise
            if received.type == RESPONSE and received.id == self._id:
                return buffer.raw[: min(received.message.length, ANSWER_BYTES)]
        return None

    def close(self) -> None:
        """Close the device; an answer under way is dropped."""
        os.close(self._descriptor)


# One reading takes up to a second on a slow controller, and controllers refresh every few seconds.
PERIOD_S = 5.0
DEADLINE_S = 4.0
DEVICES = ("ipmi[0-9]*", "ipmi/[0-9]*", "ipmidev/[0-9]*")
# DCMI 1.5, 6.6.1: network function of group extensions, its command and body; an answer repeats the group.
GROUP_EXTENSION, GET_POWER_READING, DCMI_GROUP = 0x2C, 0x02, 0xDC
REQUEST = bytes((DCMI_GROUP, 0x01, 0x00, 0x00))  # system power statistics
LENGTH, STATE, ACTIVE = 19, 18, 1 << 6


class IpmiError(Exception):
    """The controller failed after an earlier answer; it is asked again at the next period."""


class Device(Protocol):
    """The methods of an IpmiDevice that are used here."""

    def send(self, netfn: int, command: int, data: bytes) -> None: ...

    def receive(self) -> bytes | None: ...

    def close(self) -> None: ...


class IpmiMeter(PowerMeter):
    """Chassis power in watts. A reading is requested, and fetched at a later tick: the clock never waits.

    Raises:
        Unavailable: there is no IPMI device, it may not be opened, or (from `read`) the controller has no DCMI or
            measures no power.
    """

    meter = "ipmi"

    def __init__(
        self,
        dev: Path = Path("/dev"),
        clock: Callable[[], float] = time.monotonic,
        open_device: Callable[[Path], Device] = IpmiDevice,
    ) -> None:
        super().__init__(clock)
        paths = sorted(path for pattern in DEVICES for path in dev.glob(pattern))
        if not paths:
            raise Unavailable(f"this host shows no IPMI device ({dev}/ipmi*): it has none, or its driver is not loaded")
        try:
            self._device = open_device(paths[0])
        except PermissionError as error:
            raise Unavailable(f"{paths[0]} may not be opened by this user: {who_may(paths[0])}") from error
        except OSError as error:
            raise Unavailable(f"{paths[0]} cannot be opened: {error.strerror}") from error
        self._pending = False
        self._started = -PERIOD_S
        self._answered = False

    def read(self) -> Reading | None:
        """The reading that has arrived since the last call, in watts; None without one."""
        watts = None
        try:
            if self._pending:
                watts = self._fetch()
            if not self._pending and self._clock() - self._started >= PERIOD_S:
                self._started, self._pending = self._clock(), True
                self._device.send(GROUP_EXTENSION, GET_POWER_READING, REQUEST)
        except OSError as error:
            self._fail(f"the driver refuses: {error.strerror}")
        return None if watts is None else Reading(watts, None)

    def _fetch(self) -> float | None:
        answer = self._device.receive()
        if answer is None:
            if self._clock() - self._started > DEADLINE_S:
                self._fail(f"no answer within {DEADLINE_S:g} s")
            return None
        if not answer or answer[0] != 0:
            self._fail(f"it refuses, completion code {answer[:1].hex() or 'none'}: it has no DCMI power readings")
        if len(answer) < LENGTH or answer[1] != DCMI_GROUP:
            self._fail(f"an answer that is none to a DCMI command: {answer.hex()}")
        if not answer[STATE] & ACTIVE:
            self._fail("its power measurement is switched off")
        self._pending, self._answered = False, True
        return float(int.from_bytes(answer[2:4], "little"))

    def _fail(self, problem: str) -> None:
        """Give up this reading.

        Raises:
            IpmiError: the controller has answered before.
            Unavailable: it never has.
        """
        self._pending = False
        message = f"management controller (IPMI): {problem}"
        raise IpmiError(message) if self._answered else Unavailable(message)

    def close(self) -> None:
        """Close the device; a reading in progress is dropped."""
        self._device.close()
