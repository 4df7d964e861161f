// xxh3-128 and SHA-256 through libxxhash and OpenSSL.
#include "base/digests.hpp"

#include "base/digest_cache.hpp"
#include "base/file_descriptor.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <vector>

namespace tenon {

std::string hex_of(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text.push_back(kDigits[std::to_integer<unsigned>(byte >> 4)]);
    text.push_back(kDigits[std::to_integer<unsigned>(byte) & 0xf]);
  }
  return text;
}

namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    if (!context_) throw std::bad_alloc();
    check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
  }
  void update(std::span<const std::byte> bytes) {
    check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
  }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    check(EVP_DigestFinal_ex(context_.get(), digest, &size));
    return hex_of(std::as_bytes(std::span(digest, size)));
  }

 private:
  static void check(int status) {
    if (status != 1) fail_run("OpenSSL cannot compute SHA-256; the library may be restricted by policy");
  }
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

struct Xxh3Stream::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {
  if (state_->xxh == nullptr) throw std::bad_alloc();
  reset();
}
Xxh3Stream::~Xxh3Stream() = default;

void Xxh3Stream::reset() {
  XXH3_128bits_reset(state_->xxh);
}

void Xxh3Stream::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

void Xxh3Stream::update_u64(std::uint64_t value) {
  std::byte bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  update(bytes);
}

std::string Xxh3Stream::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh));
  return hex_of(std::as_bytes(std::span(canonical.digest)));
}

}  // namespace tenon

TENON_ABI_BEGIN

std::string xxh3_128_of(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return hex_of(std::as_bytes(std::span(canonical.digest)));
}

std::string sha256_of(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_of_file(FileSystem& files, const std::string& path) {
  const std::unique_ptr<ReadableFile> file = files.open(path);
  const auto compute = [&] {
    std::vector<std::byte> block(1 << 20);
    Sha256 hash;
    for (std::int64_t offset = 0; offset < file->size();) {
      const auto size =
          std::min<std::int64_t>(static_cast<std::int64_t>(block.size()), file->size() - offset);
      const std::span<std::byte> part(block.data(), size);
      file->read(offset, part);
      hash.update(part);
      offset += size;
    }
    return hash.hex();
  };
  const auto* const described = dynamic_cast<const base::DescribedFile*>(file.get());
  if (described == nullptr) return compute();
  return base::DigestCache::of_user().sha256(path, described->descriptor(), compute);
}

TENON_ABI_END

namespace tenon::plugin {

std::string file_sha256(const std::filesystem::path& file) {
  const base::FileDescriptor in(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const auto fail = [&] { fail_run(fmt::format("cannot compute the SHA-256 of '{}'", file.string())); };
  if (!in) fail();
  return base::DigestCache::of_user().sha256(file.string(), in.get(), [&] {
    std::vector<std::byte> block(1 << 16);
    Sha256 hash;
    while (true) {
      const ssize_t got = ::read(in.get(), block.data(), block.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail();
      if (got == 0) return hash.hex();
      hash.update(std::span(block).first(static_cast<std::size_t>(got)));
    }
  });
}

}  // namespace tenon::plugin
