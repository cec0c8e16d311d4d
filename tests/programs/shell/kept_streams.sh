# A library that keeps the addresses of the standard streams since its constructor, as GDAL's does, uses them on
# redirected files.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cat > "$place/keeps.c" <<'C'
#include <stdio.h>
static FILE *in, *out, *failures;
__attribute__((constructor)) static void keep(void) { in = stdin; out = stdout; failures = stderr; }
void copy(void)
{
    int byte;
    while ((byte = fgetc(in)) != EOF)
        fputc(byte, out);
    fprintf(out, "%s\n", ferror(in) || ferror(out) ? "failed" : "copied");
    fputs("said\n", failures);
}
C
echo 'void copy(void); int main(void) { copy(); return 0; }' > "$place/uses.c"
gcc -shared -fPIC -o "$place/libkeeps.so" "$place/keeps.c"
gcc -o "$place/uses" "$place/uses.c" -L"$place" -Wl,-rpath,"$place" -lkeeps

printf 'one\ntwo\n' > input
"$place/uses" < input > output 2> failures
cat output failures
"$place/uses" < input >> output 2>> failures
cat output failures
"$place/uses" < input | cat
"$place/uses" < input > both 2>&1
cat both
