# git: objects and packs, private maps, renames and locks; a clone, a collection and a check of all it stored.
set -u
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_PAGER=cat
git init -q -b main repository && cd repository
git config pack.threads 1
git config gc.auto 0
mkdir sub
for i in 1 2 3 4 5; do seq $i 400 > sub/$i; done
printf '#!/bin/sh\necho tool "$@"\n' > tool && chmod +x tool
git add . && git commit -q -m first && git log --format='%H %s'
for i in 1 2; do echo "change $i" >> sub/$i; git commit -q -a -m "change $i"; done
git mv sub/5 moved && git rm -q sub/4 && git commit -q -m 'move and remove'
git log --format='%H %s' --stat --summary
git status --short
printf '#!/bin/sh\necho hook ran\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit
git commit -q --allow-empty -m 'with a hook' 2>&1
git gc -q && git fsck --strict 2>&1
git count-objects -v | grep -E 'count|in-pack|packs|garbage'
echo more >> moved && git stash -q && git stash pop -q && git diff --stat && git checkout -q moved
git branch side HEAD~2 && git checkout -q side && echo side > side && git add side && git commit -q --no-verify -m side
git merge -q --no-verify -m merged main && git log --format=%H -1
git blame -s sub/1 | tail -2
git grep -c change
cd .. && git clone -q repository clone 2>&1 && git -C clone log --format=%H -1 && git -C clone fsck 2>&1
git clone -q --no-local --bare repository bare 2>&1 && git -C bare fsck 2>&1
cd clone && ./tool of the clone && git rev-parse HEAD^{tree} && git archive HEAD | tar t | tail -3
git bundle create -q ../bundle HEAD && git bundle verify -q ../bundle 2>&1; cd ..
rm -rf repository/.git clone bare bundle
