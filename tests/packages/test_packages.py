#!/usr/bin/env python3
"""What `make packages` and `make install` leave: installed on a bare Debian, used there, and removed without a trace; and the files for sites.

    STRIPEWISE=target/debug/stripewise tests/packages/test_packages.py

The packages are made of the build under test. What a machine cannot do (no root, no mmdebstrap, no mirror, no rpmbuild) is skipped, with the reason.
"""

import ast
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
STRIPEWISE = pathlib.Path(os.environ.get("STRIPEWISE", "target/debug/stripewise")).resolve()
VERSION = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M)[1]
# What a package manager keeps for itself.
KEPT = ("var/lib/dpkg", "var/log", "var/cache", "var/lib/rpm", "proc", "dev", "tmp", "srv/job")


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=200, **options)
    if result.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def newest_glibc(*files):
    """From the version references of the files' dynamic sections."""
    said = run("readelf", "--version-info", "--wide", *files)
    return max((tuple(map(int, found.split("."))) for found in re.findall(r"Name: GLIBC_([0-9.]+)", said)))


def files_below(root):
    """All names but those that the package manager keeps for itself."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if not str(path.relative_to(root)).startswith(KEPT)}


def without(place, *programs):
    """A PATH, in `place`, with all that this one has but these programs."""
    place.mkdir()
    for directory in reversed(os.environ["PATH"].split(":")):
        for program in pathlib.Path(directory).iterdir() if pathlib.Path(directory).is_dir() else ():
            link = place / program.name
            if program.name not in programs:
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(place)


def metrics(daemon):
    """What the daemon behind this socket serves; nothing while it does not answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(daemon))
        except OSError:
            return ""
        connection.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        with connection.makefile() as answer:
            return answer.read()


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="stripewise-packages-")))
        made = run(PACKAGING / "packages", STRIPEWISE.parent, cls.place / "packages", env={**os.environ, "LEVEL": "1"})
        cls.made = {pathlib.Path(line).suffix: pathlib.Path(line) for line in made.splitlines()}

    def package(self, suffix, tool):
        if suffix not in self.made:
            self.skipTest(f"no {suffix} was made: {tool} is not installed")
        return self.made[suffix]

    def test_the_tarball_is_a_prefix_from_which_the_command_runs_without_debug_information(self):
        with tarfile.open(self.made[".gz"]) as archive:
            archive.extractall(self.place / "unpacked", filter="tar")
        prefix, = (self.place / "unpacked").iterdir()
        command, library = prefix / "bin/stripewise", prefix / "lib/stripewise/libstripewise_preload.so"
        self.assertEqual(run(command, "--version"), f"stripewise {VERSION}\n")
        for file in (command, library):
            self.assertNotIn(".debug_info", run("readelf", "--section-headers", "--wide", file))
        self.assertRegex(run("readelf", "--dynamic", "--wide", library), r"FLAGS_1.*INITFIRST")
        (self.place / "server").mkdir()
        (self.place / "managed").mkdir()
        run(command, "init", "--server", "a=hdd:server", cwd=self.place)
        run(command, "manage", "managed", cwd=self.place)
        run(command, "run", "--", "sh", "-c", "echo redirected > managed/file", cwd=self.place)
        self.assertEqual(run(command, "cat", "managed/file", cwd=self.place), "redirected\n")
        newest = ".".join(map(str, newest_glibc(command, library)))
        self.assertEqual(prefix.name, f"stripewise-{VERSION}-{os.uname().machine}-glibc{newest}")

    def test_packages_of_a_newer_glibc_than_wanted_are_refused_by_its_version(self):
        command = (PACKAGING / "packages", STRIPEWISE.parent, self.place / "none", "2.4")
        refused = subprocess.run(command, capture_output=True, text=True, timeout=100)
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))
        self.assertRegex(refused.stderr, r"needs glibc 2\.\d+, wanted is 2\.4: build it for that \(make packages\)")

    def test_packages_need_what_every_distribution_that_is_named_has(self):
        """The library of GCC is in libgcc1 on Debian 10, in libgcc_s1 on SLES, and in libgcc on RHEL."""
        package = self.package(".deb", "dpkg-deb")
        self.assertRegex(run("dpkg-deb", "--field", package, "Depends"), r"^libc6 \(>= [0-9.]+\), libgcc-s1 \| libgcc1\n$")
        self.assertEqual(run("dpkg-deb", "--field", package, "Suggests"), "fuse3, librados2\n")
        needed = run("rpm", "--query", "--package", "--requires", self.package(".rpm", "rpmbuild")).splitlines()
        self.assertIn("libgcc_s.so.1()(64bit)", needed)
        self.assertEqual([name for name in needed if name.startswith("libgcc ") or name == "libgcc"], [])

    def debian(self):
        """The root of a bare Debian with apt, made once."""
        if os.geteuid() or not shutil.which("mmdebstrap"):
            self.skipTest("a bare Debian needs root and mmdebstrap")
        root = self.place / "debian"
        if not root.exists():
            codename = re.search(r"^VERSION_CODENAME=(.*)$", pathlib.Path("/etc/os-release").read_text(), re.M)[1]
            command = ["mmdebstrap", "--quiet", "--variant=essential", "--include=apt,ca-certificates,man-db", codename, str(root)]
            # A group of its own, so that nothing of it goes on where it takes too long.
            making = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, start_new_session=True)
            try:
                said = making.communicate(timeout=200)[1]
            except subprocess.TimeoutExpired:
                os.killpg(making.pid, signal.SIGKILL)
                said = "not done after 200 s\n" + making.communicate()[1]
            if making.returncode:
                shutil.rmtree(root, ignore_errors=True)
                self.skipTest(f"no bare Debian could be made: {said.strip().splitlines()[-1:]}")
        return root

    def test_a_bare_debian_installs_uses_and_removes_the_package(self):
        package = self.package(".deb", "dpkg-deb")
        root = self.debian()
        needed = re.search(r"libc6 \(>= ([0-9.]+)\)", run("dpkg-deb", "--field", package, "Depends"))[1]
        before = files_below(root)
        shutil.copy(package, root / "tmp/stripewise.deb")

        def inside(script):
            enter = 'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev" && mknod -m 666 "$0/dev/null" c 1 3 && exec chroot "$0" sh -euc "$1"'
            return run("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, root, script, stdin=subprocess.DEVNULL)

        inside("dpkg --install /tmp/stripewise.deb")
        command, library = root / "usr/bin/stripewise", root / "usr/lib/stripewise/libstripewise_preload.so"
        self.assertEqual(tuple(map(int, needed.split("."))), newest_glibc(command, library))
        self.assertEqual(inside("stripewise --version"), f"stripewise {VERSION}\n")
        self.assertIn("can be redirected", inside("stripewise doctor cat"))
        self.assertIn("SYNOPSIS", inside("man stripewise"))
        self.assertIn("stripewise plan", inside("man stripewise-plan"))
        complete = (
            "bash -c '. /usr/share/bash-completion/completions/stripewise; COMP_WORDS=(stripewise plan t --policy h2); COMP_CWORD=4; "
            '_clap_complete_stripewise stripewise h2 --policy; echo "${COMPREPLY[@]}"\''
        )
        self.assertEqual(inside(complete).split(), ["h2dp"])
        inside(
            "mkdir -p /srv/job/server /srv/job/managed; cd /srv/job; stripewise init --server a=hdd:server; stripewise manage managed; "
            "stripewise run -- cp /etc/os-release managed/file; stripewise run -- cmp /etc/os-release managed/file; stripewise check"
        )
        server = complete.replace("plan t --policy h2", "evacuate a").replace("COMP_CWORD=4", "COMP_CWORD=2").replace("h2 --policy", "a evacuate")
        self.assertEqual(inside(f"cd /srv/job; {server}").split(), ["a"])
        self.upgrade(package, root, inside)
        inside("dpkg --purge stripewise")
        self.assertEqual(files_below(root) - before, set())
        self.assertTrue((root / "srv/job/cluster.toml").exists(), "the user's cluster stays")

    def upgrade(self, package, root, inside):
        """A newer package takes the place of command and library while a program runs: the old broker serves it and newcomers until it ends."""
        newer = self.place / "newer"
        run("dpkg-deb", "--raw-extract", package, newer)
        control = newer / "DEBIAN/control"
        control.write_text(control.read_text().replace(f"Version: {VERSION}", f"Version: {VERSION}.1"))
        run("dpkg-deb", "-Znone", "--build", newer, root / "tmp/newer.deb")
        inside("""
            cd /srv/job; mkfifo go
            stripewise run -- sh -c 'echo before > managed/old; read line < go; echo after > managed/late' & runner=$!
            until [ -s managed/old ]; do sleep 0.1; done
            broker=$(cat stripewise-state/broker.lock)
            until stripewise cat managed/old | grep -qx before; do sleep 0.1; done
            dpkg --install /tmp/newer.deb
            readlink "/proc/$broker/exe" | grep -q "deleted"
            stripewise run -- sh -c 'cat managed/old; echo new > managed/new' | grep -qx before
            stripewise cat managed/new | grep -qx new
            test "$broker" = "$(cat stripewise-state/broker.lock)"
            echo > go; wait "$runner"
            stripewise cat managed/late | grep -qx after
            test "$broker" != "$(cat stripewise-state/broker.lock)"
            stripewise check
        """)
        self.assertEqual(inside("dpkg-query --show --showformat '${Version}' stripewise"), f"{VERSION}.1")

    def test_a_library_of_a_linker_that_does_not_know_how_is_marked_to_be_begun_first(self):
        source, library = self.place / "begun.c", self.place / "begun.so"
        source.write_text("int begun;\n")
        run("cc", "-shared", "-fPIC", "-Wl,-z,now", "-o", library, source)
        before = library.read_bytes()
        self.assertNotIn("INITFIRST", run("readelf", "--dynamic", "--wide", library))
        run(PACKAGING / "init-first", library)
        self.assertRegex(run("readelf", "--dynamic", "--wide", library), r"FLAGS_1.*NOW.*INITFIRST")
        self.assertEqual(sum(a != b for a, b in zip(before, library.read_bytes(), strict=True)), 1)
        failed = subprocess.run([PACKAGING / "init-first", source], capture_output=True, text=True)
        self.assertEqual((failed.returncode, failed.stderr), (1, f"packaging/init-first: {source} is no 64-bit little-endian ELF file\n"))

    def test_the_rpm_installs_the_same_files_and_is_removed_whole(self):
        package = self.package(".rpm", "rpmbuild")
        root = self.place / "rpm-root"
        root.mkdir()
        rpm = ("rpm", "--root", root, "--dbpath", "/var/lib/rpm")
        run(*rpm, "--initdb")
        before = files_below(root)
        run(*rpm, "--install", "--nodeps", "--noscripts", package)
        with tarfile.open(self.made[".gz"]) as archive:
            prefix = archive.getnames()[0]
            wanted = {member.name.replace(prefix, "usr", 1) for member in archive.getmembers() if member.isfile()}
        compressed = {name.removesuffix(".gz") for name in files_below(root) if (root / name).is_file()}
        self.assertEqual(compressed, wanted)
        newest = ".".join(map(str, newest_glibc(root / "usr/bin/stripewise", root / "usr/lib/stripewise/libstripewise_preload.so")))
        self.assertIn(f"glibc >= {newest}", run("rpm", "--query", "--package", "--requires", package))
        run(*rpm, "--erase", "--nodeps", "--noscripts", "stripewise")
        left = files_below(root) - before
        self.assertEqual({name for name in left if (root / name).is_file() or "stripewise" in name}, set())

    def test_an_image_is_built_of_the_package(self):
        package = self.package(".deb", "dpkg-deb")
        if not shutil.which("buildah"):
            self.skipTest("buildah is not installed")
        root = self.debian()
        options = ("buildah", "--root", self.place / "images", "--runroot", self.place / "containers", "--storage-driver", "vfs")
        base = run(*options, "from", "scratch").strip()
        run(*options, "add", "--quiet", base, root, "/")
        run(*options, "commit", "--quiet", "--rm", base, "localhost/bare")
        build = (*options, "build", "--isolation", "chroot", "--build-arg", "BASE=localhost/bare", "--tag", "localhost/stripewise")
        run(*build, "--file", PACKAGING / "containers/Containerfile", package.parent)
        made = run(*options, "from", "localhost/stripewise").strip()
        inside = run(*options, "run", "--isolation", "chroot", made, "--", "stripewise", "doctor", "cat")
        self.assertIn("can be redirected", inside)
        entry = json.loads(run(*options, "inspect", "--type", "image", "localhost/stripewise"))["OCIv1"]["config"]["Entrypoint"]
        self.assertEqual(entry, ["/usr/bin/stripewise"])

    def test_make_install_honours_prefix_and_destdir_and_strips(self):
        built, staged = self.place / "built", self.place / "staged"
        built.mkdir()
        (built / "release").symlink_to(STRIPEWISE.parent)
        make = ("make", "--directory", ROOT, "--old-file", "build", "install", f"TARGET={built}", f"DESTDIR={staged}", "PREFIX=/opt/stripewise")
        run(*make)
        prefix = staged / "opt/stripewise"
        self.assertEqual(run(prefix / "bin/stripewise", "--version"), f"stripewise {VERSION}\n")
        self.assertNotIn(".debug_info", run("readelf", "--section-headers", "--wide", prefix / "bin/stripewise"))
        self.assertTrue((prefix / "share/man/man1/stripewise-plan.1").exists())
        self.assertEqual({path.name for path in staged.iterdir()}, {"opt"})

    def test_without_dpkg_and_strip_the_build_needs_nothing_more_and_says_what_it_leaves(self):
        path = without(self.place / "few", "dpkg", "dpkg-query", "strip")
        self.assertEqual(run(ROOT / "setup/install", "--build", env={**os.environ, "PATH": path}), "")
        stage = (PACKAGING / "stage", self.place / "unstripped", STRIPEWISE.parent)
        done = subprocess.run(stage, capture_output=True, text=True, timeout=100, env={**os.environ, "PATH": path})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("strip (binutils) is not installed", done.stderr)
        self.assertIn(".debug_info", run("readelf", "--section-headers", "--wide", self.place / "unstripped/bin/stripewise"))

    def test_lints_of_packages_find_no_error(self):
        with self.subTest(".deb"):
            if not shutil.which("lintian"):
                self.skipTest("no lintian here; setup/install installs it")
            run("lintian", "--allow-root", "--fail-on", "error", self.package(".deb", "dpkg-deb"))
        with self.subTest(".rpm"):
            if not shutil.which("rpmlint"):
                self.skipTest("no rpmlint here; setup/install installs it")
            package = self.package(".rpm", "rpmbuild")
            found = set(re.findall(r"E: (\S+)", subprocess.run(["rpmlint", package], capture_output=True, text=True, timeout=100).stdout))
            # Whoever signs and publishes packages adds these.
            self.assertLessEqual(found, {"no-signature", "no-packager-tag", "no-group-tag", "no-changelogname-tag"})

    def test_containers_take_the_package_by_its_name(self):
        package = self.package(".deb", "dpkg-deb").name
        container = (PACKAGING / "containers/Containerfile").read_text()
        copied, = re.findall(r"^COPY (\S+) /tmp/$", container, re.M)
        self.assertTrue(fnmatch.fnmatch(package, copied))
        definition = (PACKAGING / "containers/stripewise.def").read_text()
        (copied, place), = re.findall(r"^    (target/packages/\S+) (/\S+/)$", definition, re.M)
        self.assertTrue(fnmatch.fnmatch(f"target/packages/{package}", copied))
        # While it is built, Apptainer has these of the host in the place of the image's.
        self.assertNotIn(place, ("/tmp/", "/var/tmp/"))
        done = [line for line in definition.splitlines() if line.startswith("    ") and "/tmp/" in line]
        self.assertEqual(done, [])
        for word in ("install", "rm"):
            self.assertRegex(definition, rf"(?m)^    .*\b{word} .*{place}{pathlib.Path(copied).name.replace('*', '[*]')}")


class Sites(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="stripewise-site-")))
        for name in ("server", "managed", "bin"):
            (self.place / name).mkdir()
        (self.place / "bin/stripewise").symlink_to(STRIPEWISE)
        self.environment = {**os.environ, "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": "17", "STRIPEWISE_SLURM": str(PACKAGING / "slurm")}
        run(STRIPEWISE, "init", "--server", "a=hdd:server:1GiB", cwd=self.place)
        run(STRIPEWISE, "manage", "managed", cwd=self.place)

    def in_job(self, *command):
        return subprocess.run(list(map(str, command)), cwd=self.place, env=self.environment, capture_output=True, text=True, timeout=100)

    def test_a_job_is_served_by_a_daemon_that_ends_with_it(self):
        script = (
            '. "$STRIPEWISE_SLURM/prologue.sh"; echo "$STRIPEWISE_DAEMON_PROCESS"; stripewise run -- sh -c "echo in a job > managed/file"; . "$STRIPEWISE_SLURM/epilogue.sh"'
        )
        job = self.in_job("sh", "-c", script)
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        process = re.search(r"^\d+$", job.stdout, re.M)[0]
        self.assertFalse(pathlib.Path("/proc", process).exists())
        self.assertEqual(run(STRIPEWISE, "cat", "managed/file", cwd=self.place), "in a job\n")

    def test_the_batch_script_has_the_programs_status(self):
        # Notes and drops the options, and runs the program once.
        # The program begins once an agent, if there is one, has been noted.
        (self.place / "bin/srun").write_text("""#!/bin/sh
echo "$@" >> srun.log
until [ "$SLURM_JOB_NUM_NODES" = 1 ] || grep -q "stripewise broker$" srun.log; do sleep 0.01; done
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
""")
        (self.place / "bin/srun").chmod(0o755)
        for nodes in ("1", "2"):
            # As in a job with --ntasks-per-node=4, whose tasks are srun's unless it is given a number.
            self.environment |= {"SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS": str(4 * int(nodes)), "SLURM_NTASKS_PER_NODE": "4"}
            job = self.in_job("bash", PACKAGING / "slurm/job.sh", "sh", "-c", "echo bytes > managed/file; exit 7")
            self.assertEqual(job.returncode, 7, job.stdout + job.stderr)
        self.assertEqual(run(STRIPEWISE, "cat", "managed/file", cwd=self.place), "bytes\n")
        agents = [line.split() for line in (self.place / "srun.log").read_text().splitlines() if line.endswith("stripewise broker")]
        self.assertEqual(len(agents), 1, "on one node there is none")
        self.assertLessEqual({"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--overlap"}, set(agents[0]))

    def test_a_job_whose_cluster_has_findings_does_not_begin(self):
        shutil.rmtree(self.place / "server")
        job = self.in_job("bash", PACKAGING / "slurm/job.sh", "touch", "begun")
        self.assertEqual(job.returncode, 1, job.stdout + job.stderr)
        self.assertFalse((self.place / "begun").exists())

    def test_scripts_of_jobs_and_packages_are_clean(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not installed")
        scripts = [
            *sorted((PACKAGING / "slurm").glob("*.sh")), *(PACKAGING / name for name in ("stage", "packages", "glibc", "wheel")),
            *(path for path in sorted((ROOT / "setup").iterdir()) if path.suffix != ".py"), ROOT / ".ci/run",
        ]
        # Lists of packages are split on purpose.
        run("shellcheck", "--external-sources", "--source-path=SCRIPTDIR", "--severity=warning", *scripts)

    def test_completions_of_fish_and_zsh_know_policies_and_servers(self):
        tools = {
            "fish": 'stripewise completions fish | source; complete -C "stripewise plan t --policy h2"; complete -C "stripewise evacuate a"',
            # What zsh's own functions are given.
            "zsh": "compdef() { :; }; _describe() { print -l -- ${(P)3}; }; source <(stripewise completions zsh); "
            "words=(stripewise plan t --policy h2); CURRENT=5; _clap_dynamic_completer_stripewise; "
            "words=(stripewise evacuate a); CURRENT=3; _clap_dynamic_completer_stripewise",
        }
        known = {shell: script for shell, script in tools.items() if shutil.which(shell)}
        if not known:
            self.skipTest("neither fish nor zsh is installed")
        for shell, script in known.items():
            with self.subTest(shell=shell):
                said = run(shell, {"fish": "--no-config", "zsh": "-f"}[shell], "-c", script, cwd=self.place, env=self.environment)
                self.assertEqual(said.split(), ["h2dp", "a"])

    def test_every_metric_of_the_dashboard_is_served(self):
        dashboard = json.loads((PACKAGING / "grafana/stripewise.json").read_text())
        asked = {name for panel in dashboard["panels"] for target in panel["targets"] for name in re.findall(r"stripewise_\w+", target["expr"])}
        self.assertGreater(len(asked), 15)
        cluster = re.search(r'^id = "(.*)"$', (self.place / "cluster.toml").read_text(), re.M)[1]
        line = {"alpha_s": 1e-3, "beta_s_per_byte": 8e-9, "r2": 1.0, "spread": 0.05, "samples": 9}
        kinds = ("read_sequential", "read_random", "write_sequential", "write_random")
        (self.place / "profile.json").write_text(json.dumps({
            "version": 3, "cluster": cluster, "emulated": False, "measured_at": "",
            "servers": [{"name": "a", "class": "hdd", **dict.fromkeys(kinds, line)}],
            "network": {"e_s": 0.0, "t_s_per_byte": 0.0, "source": "local"},
        }))
        with subprocess.Popen([STRIPEWISE, "daemon", "--online"], cwd=self.place, stderr=subprocess.DEVNULL) as daemon:
            try:
                # What it has counted of programs is served from its first window on.
                while "stripewise_online_" not in (served := metrics(self.place / "stripewise-state/run/daemon.sock")):
                    self.assertIsNone(daemon.poll(), "the daemon has ended")
            finally:
                daemon.terminate()
        families = dict(re.findall(r"^# TYPE (\w+) (\w+)$", served, re.M))
        parts = {family + part for family, kind in families.items() for part in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))}
        # An agent serves what it has counted: of questions and of I/O on pools there is none on this host.
        documented = set(re.findall(r"stripewise_agent_\w+", (ROOT / "docs/hosts.md").read_text()))
        counted = {name for name in asked - parts if name.removesuffix("_bucket") in documented}
        self.assertEqual(asked - parts - counted, set())

    def test_the_spack_recipe_is_python_that_installs_as_make_does(self):
        tree = ast.parse((PACKAGING / "spack/package.py").read_text())
        recipe, = (node for node in tree.body if isinstance(node, ast.ClassDef))
        self.assertEqual(recipe.name, "Stripewise")
        called = {node.func.id for node in ast.walk(recipe) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        self.assertLessEqual({"version", "depends_on", "license", "make"}, called)
        rust = re.search(r'^rust-version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M)[1]
        self.assertIn(f"rust@{rust}:", ast.unparse(recipe))


if __name__ == "__main__":
    sys.exit(unittest.main())
