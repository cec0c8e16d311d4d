# A build below the directory: objects, an archive, shared objects found by rpath, by $ORIGIN and by dlopen, make.
set -u
mkdir -p src lib bin
cat > src/part.c <<'END'
int part(void) { return 40; }
END
cat > src/other.c <<'END'
int other(void) { return 2; }
END
cat > src/plugin.c <<'END'
int plugin(void) { return 100; }
END
cat > src/main.c <<'END'
#include <dlfcn.h>
#include <stdio.h>
int part(void);
int other(void);
int main(int argc, char **argv)
{
    printf("sum %d\n", part() + other());
    for (int i = 1; i < argc; i++) {
        void *first = dlopen(argv[i], RTLD_NOW), *again = dlopen(argv[i], RTLD_NOW);
        if (!first) {
            printf("dlopen: %s\n", dlerror());
            return 1;
        }
        int (*plugin)(void) = (int (*)(void))dlsym(first, "plugin");
        printf("plugin %d, %s\n", plugin(), first == again ? "loaded once" : "loaded twice");
    }
    return 0;
}
END
gcc -O1 -c src/part.c -o lib/part.o && gcc -O1 -c src/other.c -o lib/other.o && gcc -O1 -c src/main.c -o lib/main.o
ar rcs lib/libboth.a lib/part.o lib/other.o && ar t lib/libboth.a
gcc lib/main.o -Llib -lboth -ldl -o bin/static_parts && ./bin/static_parts
echo "status $?"
gcc -shared -fPIC src/part.c src/other.c -o lib/libboth.so.1 && ln -s libboth.so.1 lib/libboth.so
gcc -shared -fPIC src/plugin.c -o lib/plugin.so
rm lib/libboth.a
gcc lib/main.o -Llib -lboth -Wl,-rpath,"$PWD/lib" -ldl -o bin/by_rpath && ./bin/by_rpath ./lib/plugin.so
gcc lib/main.o -Llib -lboth -Wl,-rpath,'$ORIGIN/../lib' -ldl -o bin/by_origin && ./bin/by_origin "$PWD/lib/plugin.so"
(cd bin && ./by_origin ../lib/plugin.so)
LD_LIBRARY_PATH=lib ./bin/by_rpath
# A shared object that came under another name is no ordinary file; it loads all the same.
cp lib/plugin.so lib/plugin.tmp && mv lib/plugin.tmp lib/plugin.data && ./bin/by_rpath ./lib/plugin.data
cat > Makefile <<'END'
OBJECTS = lib/main.o lib/part.o lib/other.o
made: $(OBJECTS)
	gcc $(OBJECTS) -ldl -o $@
	./$@
lib/%.o: src/%.c
	gcc -O2 -c $< -o $@
answer: made
	./made > $@
END
touch src/part.c
make -s made && make -s answer && cat answer && make -q answer
echo "make is done: $?"
./made ./lib/plugin.so; echo "status $?"
install -m 755 made bin/installed && ./bin/installed
cp made copy && ./copy && chmod a-x copy && { ./copy 2>/dev/null; echo "without x: $?"; }
rm bin/by_rpath # it holds the directory's name
