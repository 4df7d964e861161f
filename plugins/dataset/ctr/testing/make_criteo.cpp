// make_criteo ROWS [SEED] > FILE writes a file in Criteo's format, for trials without the real logs.
#include "criteo_text.hpp"

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const long long rows = argc > 1 ? std::atoll(argv[1]) : 0;
  if (rows < 1) {
    std::fprintf(stderr, "usage: make_criteo ROWS [SEED] > FILE\n");
    return 2;
  }
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  for (long long row = 0; row < rows; ++row) {
    const std::string line = tenon::ctr::criteo_line(seed, static_cast<std::uint64_t>(row));
    if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size()) {
      std::perror("make_criteo");
      return 1;
    }
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
