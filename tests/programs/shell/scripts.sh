# Scripts run by their first lines, whichever shell starts them, and by interpreters that are given their path.
set -u
printf '#!/usr/bin/python3 -B\nimport sys\nprint("python", sys.argv, open("data").read().strip())\n' > tool.py
printf '#!/usr/bin/env python3\nimport sys\nprint("env python", sys.argv)\n' > by_env
printf '#!/bin/bash\necho "bash $0 $*"\n' > in_bash
printf '#!/usr/bin/perl -w\nprint "perl $0 @ARGV\\n";\n' > in_perl
printf 'echo "no first line: $0 $*"\n' > bare
printf '#!/usr/bin/awk -f\nBEGIN { print "awk", ARGC }\n' > in_awk
printf '#!/usr/bin/python3\n' > long.py
for i in $(seq 1 3000); do echo "total = $i"; done >> long.py
echo 'print("long", total)' >> long.py
echo 'some data' > data
chmod +x tool.py by_env in_bash in_perl bare in_awk long.py
for script in ./tool.py ./by_env ./in_bash ./in_perl ./bare ./in_awk ./long.py; do
    $script 1 '2 3'
    echo "status $?"
    sh -c "$script again"
    dash -c "$script once more; true"
done
python3 tool.py by name
bash in_bash by name
perl in_perl by name
sh bare by name
python3 -c 'import subprocess; print(subprocess.run(["./tool.py", "x"], capture_output=True, text=True).stdout, end="")'
python3 -c 'import subprocess; print(subprocess.run(["./in_bash", "x"], close_fds=False, capture_output=True, text=True).stdout, end="")'
python3 -c 'import os; os.execv("./by_env", ["name", "from python"])'
find . -name in_bash -exec {} found \;
printf 'a\nb\n' | xargs -n 1 ./in_bash
env -u NOTHING ./in_bash through env
timeout 20 ./in_bash through timeout
nice ./in_bash through nice
chmod -x bare
./bare 2>/dev/null; echo "status without x $?"
./in_bash > out && cat out
