#!/usr/bin/python3
"""mount.nfs and mount.nfs4 for a kernel without an NFS client: libnfs below FUSE. For the tests alone.

The server and the protocol (NFSv3, AUTH_SYS with the caller's uid and gid) are real, and so is the mount. It
shows as fuse.nfs4 in mountinfo. Nothing is cached, and a server that is silent is waited for, as `hard` does.

    mount.nfs4 SOURCE PATH [-sfnvr] [-o OPTIONS]
"""

# It needs what Debian's system Python has: python3-fusepy, and libnfs13.
# ruff: noqa: PTH119
# mypy: ignore-errors

from __future__ import annotations

import ctypes
import os
import stat
import sys

from fusepy import FUSE, FuseOSError, Operations, fuse_get_context

NAMES = (
    *("dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks"),
    *("atime", "mtime", "ctime", "ansec", "mnsec", "cnsec", "used"),
)
FS_NAMES = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail")
# Names that mount(8) deals with itself, or that only a kernel's client has a meaning for.
TO_FUSE = {"ro", "nosuid", "nodev", "noexec", "noatime", "sync", "dirsync"}
EXIT_USAGE, EXIT_FAILED = 1, 32


class Stat(ctypes.Structure):
    """libnfs' nfs_stat_64."""

    _fields_ = [(name, ctypes.c_uint64) for name in NAMES]


class FsStat(ctypes.Structure):
    """glibc's struct statvfs on 64-bit Linux, with room to spare."""

    _fields_ = [*((name, ctypes.c_ulong) for name in FS_NAMES), ("rest", ctypes.c_char * 128)]


class Entry(ctypes.Structure):
    """The beginning of libnfs' struct nfsdirent."""


Entry._fields_ = [("next", ctypes.POINTER(Entry)), ("name", ctypes.c_char_p)]

libnfs = ctypes.CDLL("libnfs.so.13")
libnfs.nfs_init_context.restype = ctypes.c_void_p
libnfs.nfs_get_error.restype = ctypes.c_char_p
libnfs.nfs_readdir.restype = ctypes.POINTER(Entry)


def connected(server: str, export: str, uid: int, gid: int) -> ctypes.c_void_p:
    """A libnfs context that speaks as this user. RuntimeError says why there is none."""
    context = ctypes.c_void_p(libnfs.nfs_init_context())
    libnfs.nfs_set_version(context, 3)
    libnfs.nfs_set_uid(context, uid)
    libnfs.nfs_set_gid(context, gid)
    libnfs.nfs_set_dircache(context, 0)
    libnfs.nfs_set_autoreconnect(context, -1)
    if libnfs.nfs_mount(context, server.encode(), export.encode()):
        raise RuntimeError(os.fsdecode(libnfs.nfs_get_error(context) or b"unknown error"))
    return context


class Nfs(Operations):
    """Each user has a connection of its own, so that the server sees who asks."""

    def __init__(self, server: str, export: str) -> None:
        self._where = (server, export)
        self._contexts: dict[tuple[int, int], ctypes.c_void_p] = {}
        self._handles: dict[int, tuple[ctypes.c_void_p, ctypes.c_void_p]] = {}

    @property
    def _context(self) -> ctypes.c_void_p:
        uid, gid, _ = fuse_get_context()
        if (uid, gid) not in self._contexts:
            self._contexts[uid, gid] = connected(*self._where, uid, gid)
        return self._contexts[uid, gid]

    def _call(self, name: str, path: str, *arguments: object) -> int:
        result = getattr(libnfs, f"nfs_{name}")(self._context, os.fsencode(path), *arguments)
        if result < 0:
            raise FuseOSError(-result)
        return result

    def getattr(self, path: str, fh: object = None) -> dict[str, float]:
        found = Stat()
        self._call("lstat64", path, ctypes.byref(found))
        result = {
            f"st_{name}": getattr(found, name) for name in ("ino", "mode", "nlink", "uid", "gid", "size")
        }
        result["st_blocks"] = found.blocks
        for name in ("atime", "mtime", "ctime"):
            result[f"st_{name}"] = getattr(found, name) + getattr(found, name[0] + "nsec") / 1e9
        return result

    def access(self, path: str, mode: int) -> int:
        return self._call("access", path, mode)

    def readdir(self, path: str, fh: object) -> list[str]:
        directory = ctypes.c_void_p()
        self._call("opendir", path, ctypes.byref(directory))
        names = []
        while entry := libnfs.nfs_readdir(self._context, directory):
            names.append(os.fsdecode(entry.contents.name))
        libnfs.nfs_closedir(self._context, directory)
        return names

    def readlink(self, path: str) -> str:
        buffer = ctypes.create_string_buffer(4096)
        self._call("readlink", path, buffer, 4096)
        return os.fsdecode(buffer.value)

    def statfs(self, path: str) -> dict[str, int]:
        found = FsStat()
        self._call("statvfs", path, ctypes.byref(found))
        return {name: getattr(found, name) for name in FS_NAMES}

    def mkdir(self, path: str, mode: int) -> int:
        return self._call("mkdir2", path, mode)

    def rmdir(self, path: str) -> int:
        return self._call("rmdir", path)

    def unlink(self, path: str) -> int:
        return self._call("unlink", path)

    def rename(self, old: str, new: str) -> int:
        return self._call("rename", old, os.fsencode(new))

    def symlink(self, target: str, source: str) -> int:
        return self._call("symlink", source, os.fsencode(target))

    def link(self, target: str, source: str) -> int:
        return self._call("link", source, os.fsencode(target))

    def chmod(self, path: str, mode: int) -> int:
        return self._call("chmod", path, stat.S_IMODE(mode))

    def chown(self, path: str, uid: int, gid: int) -> int:
        return self._call("chown", path, uid, gid)

    def truncate(self, path: str, length: int, fh: object = None) -> int:
        return self._call("truncate", path, ctypes.c_uint64(length))

    def utimens(self, path: str, times: object = None) -> int:
        return 0

    def create(self, path: str, mode: int, fi: object = None) -> int:
        return self._opened("creat", path, mode)

    def open(self, path: str, flags: int) -> int:
        return self._opened("open", path, flags)

    def _opened(self, how: str, path: str, argument: int) -> int:
        handle = ctypes.c_void_p()
        self._call(how, path, argument, ctypes.byref(handle))
        number = max(self._handles, default=0) + 1
        self._handles[number] = (self._context, handle)
        return number

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        context, handle = self._handles[fh]
        buffer = ctypes.create_string_buffer(size)
        got = libnfs.nfs_pread(context, handle, ctypes.c_uint64(offset), ctypes.c_uint64(size), buffer)
        if got < 0:
            raise FuseOSError(-got)
        return buffer.raw[:got]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        context, handle = self._handles[fh]
        put = libnfs.nfs_pwrite(context, handle, ctypes.c_uint64(offset), ctypes.c_uint64(len(data)), data)
        if put < 0:
            raise FuseOSError(-put)
        return put

    def release(self, path: str, fh: int) -> int:
        context, handle = self._handles.pop(fh)
        return min(0, libnfs.nfs_close(context, handle))


def main(argv: list[str]) -> int:
    """Mounted, with a process in the background that serves the mount, when this ends with 0."""
    kind = os.path.basename(argv[0]).partition(".")[2]
    source, path, *rest = argv[1:]
    options = set(rest[rest.index("-o") + 1].split(",")) if "-o" in rest else set()
    server, colon, export = source.partition(":")
    if not colon:
        print(f"mount.{kind}: {source} is not SERVER:/EXPORT", file=sys.stderr)
        return EXIT_USAGE
    try:
        connected(server, export, 0, 0)
    except RuntimeError as error:
        print(f"mount.{kind}: {error}", file=sys.stderr)
        return EXIT_FAILED
    passed = dict.fromkeys(options & TO_FUSE, True)
    FUSE(
        Nfs(server, export),
        path,
        raw_fi=False,
        nothreads=True,
        foreground=False,
        allow_other=True,
        fsname=source,
        subtype=kind,
        attr_timeout=0,
        entry_timeout=0,
        **passed,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
