# The sqlite3 shell: journals beside the database, locks between processes.
set -u
sqlite3 data.db 'pragma journal_mode = delete; create table t (a integer, b text);'
for i in 1 2 3 4; do
    for j in $(seq 1 10); do sqlite3 -cmd '.timeout 20000' data.db "insert into t values ($i, 'row $j');"; done &
done
wait
sqlite3 data.db 'select a, count(*) from t group by a order by a; pragma integrity_check;'
sqlite3 data.db '.dump' | sort > dump
cksum < dump
sqlite3 data.db 'begin; delete from t; rollback; select count(*) from t;'
sqlite3 data.db "vacuum into 'copy.db';"
sqlite3 copy.db 'select count(*) from t;'
rm data.db copy.db # their pages are in the scheduler's order
sqlite3 data.db 'create table t (a integer); insert into t values (1), (2), (3);'
