// C++ streams where descriptors 0 and 1 become files: by freopen and by dup2, and back again.
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <string>
#include <unistd.h>

static void show(const char *name)
{
    std::ifstream in(name);
    std::string line;
    while (std::getline(in, line))
        std::cout << name << ": " << line << "\n";
}

int main()
{
    std::cout << "at the start\n" << std::flush;
    int kept = dup(1);
    if (!freopen("reopened", "w", stdout))
        return 1;
    std::cout << "by cout " << 1 << "\n";
    std::printf("by printf\n");
    std::cout << "again by cout" << std::endl;
    int fd = open("duplicate", O_RDWR | O_CREAT | O_TRUNC, 0644);
    std::fflush(stdout);
    dup2(fd, 1);
    std::cout << "to the duplicate\n";
    std::printf("in turn\n");
    std::cout << "with printf\n" << std::flush;
    std::fflush(stdout);
    dup2(kept, 1);
    std::cout << "back, good " << std::cout.good() << "\n" << std::flush;
    show("reopened");
    show("duplicate");
    int input = open("reopened", O_RDONLY);
    dup2(input, 0);
    std::string word;
    int words = 0;
    while (std::cin >> word)
        words++;
    std::cout << words << " words\n";
    std::ofstream("stream") << "by a file stream " << 3.25 << "\n";
    show("stream");
    return 0;
}
