# git: objects and packs, private maps, renames and locks; a clone, a collection and a check of all it stored. Without the samples that git copies into
# each new repository, which would be most of the files and prove nothing more.
set -u
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_PAGER=cat
git init -q --template= -b main repository && cd repository
git config pack.threads 1
git config gc.auto 0
mkdir sub .git/hooks
for i in 1 2 3; do seq $i 400 > sub/$i; done
printf '#!/bin/sh\necho tool "$@"\n' > tool && chmod +x tool
git add . && git commit -q -m first && git log --format='%H %s'
printf '#!/bin/sh\necho hook ran\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit
echo change >> sub/1 && git mv sub/3 moved && git rm -q sub/2 && git commit -q -a -m 'change, move and remove' 2>&1
git log --format='%H %s' --stat --summary
git status --short
git gc -q && git fsck --strict 2>&1
git count-objects -v | grep -E 'count|in-pack|packs|garbage'
echo more >> moved && git diff --stat && git checkout -q moved
git checkout -q -b side HEAD~1 && echo side > side && git add side && git commit -q --no-verify -m side
git merge -q --no-verify -m merged main && git log --format=%H -1
git blame -s sub/1 | tail -2
git grep -c change
cd .. && git clone -q --template= repository clone 2>&1 && git -C clone log --format=%H -1 && git -C clone fsck 2>&1
git clone -q --template= --no-local --bare repository bare 2>&1 && git -C bare fsck 2>&1
cd clone && ./tool of the clone && git rev-parse HEAD^{tree} && git archive HEAD | tar t | tail -3; cd ..
rm -rf repository/.git clone bare
