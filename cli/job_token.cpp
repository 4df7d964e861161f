// The file of the secret, and the word made of it (job_token.hpp).
#include "job_token.hpp"

#include "base/file_descriptor.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <span>
#include <string_view>

namespace tenon::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSecretDigits = 64, kTokenDigits = 32;

[[noreturn]] void refuse_secret(const fs::path& file, std::string_view what) {
  fail_config(
      fmt::format("environment: the tasks of a job recognise each other by a secret in '{}', which {}; or "
                  "export TENON_TOKEN, a secret word, in the batch script",
                  file.string(), what));
}

/// "" where there is no file.
std::string read_secret(const fs::path& file) {
  const base::FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened && errno == ENOENT) return "";
  struct stat facts {};
  if (!opened || ::fstat(opened.get(), &facts) != 0)
    refuse_secret(file, fmt::format("cannot be read: {}", std::strerror(errno)));
  if (facts.st_uid != ::geteuid() || !S_ISREG(facts.st_mode) || (facts.st_mode & 077) != 0)
    refuse_secret(file, "is not a file of this user that nobody else may read; remove it");
  std::array<char, kSecretDigits + 2> text{};
  const ssize_t size = ::read(opened.get(), text.data(), text.size());
  const std::string_view digits(text.data(), size == kSecretDigits + 1 ? kSecretDigits : 0);
  if (digits.empty() || text[kSecretDigits] != '\n' ||
      digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    refuse_secret(file, fmt::format("is not a line of {} hexadecimal digits; remove it", kSecretDigits));
  }
  return std::string(digits);
}

/// Written elsewhere and linked, so that no task reads a part, and the first one's remains.
void make_secret(const fs::path& file) {
  std::random_device device;
  std::string text;
  while (text.size() < kSecretDigits) text += fmt::format("{:08x}", device());
  text += '\n';
  std::error_code failed;
  fs::create_directories(file.parent_path(), failed);
  const std::string prepared = fmt::format("{}.{}-{:08x}", file.string(), ::getpid(), device());
  const base::FileDescriptor made(::open(prepared.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  bool ok = made && ::write(made.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
            ::fsync(made.get()) == 0;
  ok = ok && (::link(prepared.c_str(), file.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  ::unlink(prepared.c_str());
  if (!ok) refuse_secret(file, fmt::format("cannot be made: {}", std::strerror(error)));
}

}  // namespace

fs::path job_secret_file(const Variables& variables) {
  const char* state = variables("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return fs::path(state) / "tenon/job_secret";
  const char* home = variables("HOME");
  if (home == nullptr || home[0] != '/') {
    fail_config(
        "environment: without HOME there is no secret by which the tasks of a job recognise each other; "
        "export "
        "TENON_TOKEN, a secret word, in the batch script");
  }
  return fs::path(home) / ".local/state/tenon/job_secret";
}

std::string job_token(const Variables& variables, const SlurmStep& step) {
  const fs::path file = job_secret_file(variables);
  std::string secret = read_secret(file);
  if (secret.empty()) {
    make_secret(file);
    secret = read_secret(file);
  }
  if (secret.empty()) refuse_secret(file, "is gone again");
  const std::string text = fmt::format("{} {} {}", secret, step.name(), step.restarts);
  return sha256_of(std::as_bytes(std::span(text))).substr(0, kTokenDigits);
}

}  // namespace tenon::cli
