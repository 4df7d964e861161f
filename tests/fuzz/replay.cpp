// Runs a target over files and folders: the corpus, and inputs that once broke something. Serves builds
// without a fuzzer, so that a finding stays a test on every compiler.
#include "input.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  int inputs = 0;
  const auto run = [&](const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    ++inputs;
  };
  for (int i = 1; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) {
      run(argv[i]);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(argv[i])) run(entry.path());
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
