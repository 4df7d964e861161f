// The plugin `tenon.progress`, and standard error as its LineOutput, in place of which tests write into
// memory. Writes straight to the descriptor, so that a line is one write and never interleaves.
#include "progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace tenon::progress {
namespace {

class StandardError final : public LineOutput {
 public:
  void write(std::string_view text) override {
    while (!text.empty()) {
      const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;
      text.remove_prefix(written);
    }
  }

  int width() const override {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  }
};

}  // namespace

std::unique_ptr<LineOutput> standard_error() {
  return std::make_unique<StandardError>();
}

}  // namespace tenon::progress

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.progress",
                               .version = "0.1.0",
                               .summary = "progress line on standard error"},
             tenon::progress::Progress)
