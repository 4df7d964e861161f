#include "plugin/sha256.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <memory>
#include <vector>

namespace tenon::plugin {

std::string file_sha256(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool ok = in.is_open() && digest != nullptr && EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) == 1;
  std::vector<char> block(1 << 16);
  while (ok && in) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    ok =
        !in.bad() && EVP_DigestUpdate(digest.get(), block.data(), static_cast<std::size_t>(in.gcount())) == 1;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned length = 0;
  ok = ok && EVP_DigestFinal_ex(digest.get(), bytes.data(), &length) == 1;
  if (!ok) fail_run(fmt::format("cannot compute the SHA-256 of '{}'", file.string()));
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

}  // namespace tenon::plugin
