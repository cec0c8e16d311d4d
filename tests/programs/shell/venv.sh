# Virtual environments with links and with copies of the interpreter; a package installed from a local directory.
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
rm -rf symlinks copies
