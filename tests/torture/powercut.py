"""A power cut, of what record_writes.c has written down: the directory as a disk may hold it when
the power fails after some of the changes.

What POSIX promises is kept, and nothing else. The bytes of a file are those of its last fsync; where
it was written to since, what was added may be there, be cut short, or be zeros. The names in a
directory are those of its last fsync, and as many of the changes after it, in their order, as the
disk had come to; each directory has come to another point."""
import os
import pathlib


class File:
    def __init__(self, content=b""):
        self.synced, self.size, self.dirty, self.future = content, len(content), False, None

    def after_cut(self, random):
        """The bytes that may be found."""
        if not self.dirty:
            return self.synced
        if self.future is None:
            longer = self.synced + bytes(max(0, self.size - len(self.synced)))
            return random.choice([self.synced, longer])
        grown = self.future.startswith(self.synced)
        least = min(len(self.synced), self.size) if grown else 0
        kept = random.randint(least, max(least, self.size))
        found = self.future[:kept]
        choices = [found, found + bytes(max(0, self.size - kept))]
        if not grown:
            choices.append(self.synced)
        return random.choice(choices)


class Directory:
    def __init__(self):
        self.names, self.durable, self.pending = {}, {}, []

    def change(self, *changes):
        """Names that change at once; None: the name is gone."""
        for name, node in changes:
            if node is None:
                self.names.pop(name, None)
            else:
                self.names[name] = node
        self.pending.append(changes)

    def sync(self):
        self.durable, self.pending = dict(self.names), []

    def after_cut(self, random):
        names = dict(self.durable)
        for changes in self.pending[:random.randint(0, len(self.pending))]:
            for name, node in changes:
                if node is None:
                    names.pop(name, None)
                else:
                    names[name] = node
        return names


def read_tree(path):
    """What is on the disk, all of it synced."""
    if not path.is_dir():
        return File(path.read_bytes())
    directory = Directory()
    for entry in sorted(path.iterdir()):
        directory.names[entry.name] = read_tree(entry)
    directory.sync()
    return directory


def read_record(path):
    """[(what, size, content or None, path, path before)]"""
    changes = []
    with open(path, "rb") as record:
        for line in record:
            what, _, size, has_content, name, before = line.decode().split(" ")
            content = record.read(int(size)) if has_content == "1" else None
            changes.append((what, int(size), content, name, before.strip()))
    return changes


class Disk:
    """The tree below `root`, a directory that is there to stay."""

    def __init__(self, root):
        self.root, self.tree = str(root), read_tree(pathlib.Path(root))

    def is_root(self, path):
        return os.path.normpath(os.path.join(self.root, path)) == self.root

    def find(self, path):
        """The directory of a path, and its name there; (None, "") where it is not below the root."""
        relative = os.path.relpath(os.path.join(self.root, path), self.root)
        parts = relative.split("/")
        node = self.tree
        for part in parts[:-1]:
            node = node.names.get(part) if isinstance(node, Directory) else None
        if parts == ["."] or parts[0] == ".." or not isinstance(node, Directory):
            return None, ""
        return node, parts[-1]

    def apply(self, change, is_directory):
        what, size, content, path, before = change
        directory, name = self.find(path)
        if what == "sync" and self.is_root(path):
            self.tree.sync()
        if directory is None:
            return
        node = directory.names.get(name)
        if what == "create":
            directory.change((name, Directory() if is_directory else File()))
        elif what == "gone":
            directory.change((name, None))
        elif what == "rename":
            self.rename(before, directory, name)
        elif what == "sync" and isinstance(node, Directory):
            node.sync()
        elif what == "sync" and node and content is not None:
            node.synced, node.size, node.dirty = content, size, False
        elif what == "write" and isinstance(node, File):
            node.size, node.dirty = size, True

    def rename(self, before, directory, name):
        old, old_name = self.find(before)
        node = old.names.get(old_name) if old else None
        if node is None:
            return
        if old is directory:
            directory.change((old_name, None), (name, node))
        else:
            old.change((old_name, None))
            directory.change((name, node))

    def foresee(self, change):
        """The bytes that a file has come to, for a cut before they were synced."""
        what, _, content, path, before = change
        directory, name = self.find(before if what == "rename" else path)
        node = directory.names.get(name) if directory else None
        if isinstance(node, File) and content is not None:
            node.future = content

    def write(self, target, random):
        """The tree after a cut, at `target`, which is made."""
        def put(node, path):
            if isinstance(node, File):
                path.write_bytes(node.after_cut(random))
                return
            path.mkdir()
            for name, inner in node.after_cut(random).items():
                put(inner, path / name)
        put(self.tree, pathlib.Path(target))


def directories_of(changes):
    """Paths that are created as directories: something is made in them, or they are synced."""
    return {change[3] for change in changes if change[0] == "create"} & {
        parent for change in changes
        for parent in (os.path.dirname(change[3]), os.path.dirname(change[4]))}


def cut(disk, changes, at, final, random, target):
    """Writes `disk` to `target` as it may be when the power fails after `at` of the changes. final:
    bytes of files at the end, by path, for what was never synced after its last writing."""
    folders = directories_of(changes)
    for change in changes[:at]:
        disk.apply(change, change[3] in folders)
    for path, content in final.items():
        directory, name = disk.find(path)
        node = directory.names.get(name) if directory else None
        if isinstance(node, File):
            node.future = content
    for change in reversed(changes[at:]):
        disk.foresee(change)
    disk.write(target, random)
