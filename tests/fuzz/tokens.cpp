// Target: files of tokens. The first byte of the input chooses the format. Every token of an accepted file
// can be read, alone and in runs, and the check of a vocabulary is correct.
#include "input.hpp"
#include "token_file.hpp"

#include <tenon/error.hpp>

#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  if (size == 0) return 0;
  constexpr const char* kFormats[] = {"auto", "bytes", "nanogpt", "llmc"};
  const fuzz::MemoryFile input(fuzz::text_of(data + 1, size - 1));
  try {
    const text::TokenFile file(input.path(), kFormats[data[0] % 4]);
    std::vector<std::int32_t> run(file.size());
    file.copy(0, file.size(), run.data());
    bool inside = true;
    for (std::int64_t i = 0; i < file.size(); ++i) {
      fuzz::require(static_cast<std::uint32_t>(run[i]) == file.token(i), "two readings of a token");
      inside = inside && file.token(i) < 1000;
    }
    bool accepted = true;
    try {
      file.check_tokens(1000);
    } catch (const Error&) {
      accepted = false;
    }
    fuzz::require(accepted == inside, "the check of the vocabulary is wrong");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
