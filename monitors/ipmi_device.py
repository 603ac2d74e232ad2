"""Sends commands to a machine's management controller through Linux's driver (linux/ipmi.h), without waiting."""

import ctypes
import errno
import fcntl
import os
import select
from collections.abc import Callable
from pathlib import Path

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
    _fields_ = (
        ("type", ctypes.c_int),
        ("address", ctypes.c_void_p),
        ("address_length", ctypes.c_uint),
        ("id", ctypes.c_long),
        ("message", _Message),
    )


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
