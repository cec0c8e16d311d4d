# Virtual environments with links and with copies of the interpreter; packages installed from a local directory, by hand and from a wheel by pip.
set -u
export PYTHONNOUSERSITE=1
mkdir -p package/greeting
echo 'def greet(name): return f"hello, {name}"' > package/greeting/__init__.py
here=$PWD
look='import sys, os.path, ctypes, _ssl; print(os.path.relpath(sys.prefix, os.environ["HERE"]), os.path.relpath(sys.executable, os.environ["HERE"]))'
for way in symlinks copies; do
    /usr/bin/python3 -m venv --without-pip --$way $way
    echo "made $way: $?"
    HERE=$here ./$way/bin/python3 -c "$look"
    (PATH=$here/$way/bin:$PATH; export HERE=$here; python3 -c "$look")
    (. ./$way/bin/activate && HERE=$here python3 -c "$look")
    site=$(echo $way/lib/python3*/site-packages)
    cp -r package/greeting $site/
    ./$way/bin/python3 -c 'import greeting; print(greeting.greet("venv"), "site-packages" in greeting.__file__)'
    printf '#!%s/%s/bin/python3\nimport sys, greeting\nprint(greeting.greet(sys.argv[1]))\n' "$here" "$way" > $way/bin/greet
    chmod +x $way/bin/greet
    ./$way/bin/greet script
    sh -c "./$way/bin/greet 'script of sh'"
done
# The system's pip, which does not have to be installed first. It writes the script for the package, and compiles it.
/usr/bin/python3 - << 'END'
import zipfile
with zipfile.ZipFile("parting-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("parting.py", 'def part():\n    print("good bye")\n')
    wheel.writestr("parting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: parting\nVersion: 1.0\n")
    wheel.writestr("parting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("parting-1.0.dist-info/entry_points.txt", "[console_scripts]\npart = parting:part\n")
    wheel.writestr("parting-1.0.dist-info/RECORD", "")
END
install="/usr/bin/python3 -m pip --python symlinks/bin/python3 --quiet --isolated --no-cache-dir --disable-pip-version-check"
$install install --no-index --no-deps ./parting-1.0-py3-none-any.whl
echo "installed: $?"
./symlinks/bin/part
$install uninstall --yes parting
echo "uninstalled: $?"; ls symlinks/bin | grep -c part
rm -rf symlinks copies parting-1.0-py3-none-any.whl
