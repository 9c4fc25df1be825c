"""python3 terraform/modules/machine/boot/boot_test.py"""

import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

CONFIG = '{"region": "eu-central-1", "endpoint": null}'
with mock.patch.object(pathlib.Path, "read_text", return_value=CONFIG):
    import boot

ROMFS = b"-rom1fs-"


@unittest.skipUnless(shutil.which("blkid") and shutil.which("mkfs.ext4"), "blkid or mkfs.ext4 is not installed")
class Disks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.disk = pathlib.Path(self.folder.name, "disk")
        with self.disk.open("wb") as file:
            file.truncate(8 << 20)

    def tearDown(self):
        self.folder.cleanup()

    def format(self):
        subprocess.run(["mkfs.ext4", "-q", str(self.disk)], check=True)

    def test_a_new_disk_is_empty(self):
        self.assertTrue(boot.is_empty(self.disk))

    def test_a_disk_with_data_is_not_empty(self):
        self.format()
        self.assertFalse(boot.is_empty(self.disk))

    def test_a_disk_with_two_signatures_is_left_to_a_person(self):
        self.format()
        with self.disk.open("r+b") as file:
            file.write(ROMFS)
        with self.assertRaisesRegex(LookupError, "a person must look at this disk"):
            boot.is_empty(self.disk)

    def test_a_disk_that_cannot_be_read_is_not_formatted(self):
        self.disk.unlink()
        with self.assertRaises(OSError):
            boot.is_empty(self.disk)


class Secrets(unittest.TestCase):
    def test_a_secret_file_is_never_open_to_others(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(shutil, "chown"):
            path = pathlib.Path(folder, "tls.key")
            path.write_text("old")
            boot.put(path, "new", "nobody")
            self.assertEqual((path.read_text(), path.stat().st_mode & 0o777), ("new", 0o400))


if __name__ == "__main__":
    unittest.main()
