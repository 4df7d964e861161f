// Target: MANIFEST.json of a checkpoint and the reports of ranks. The input is a manifest without its last
// lines, which are added with the right CRC: otherwise no input would pass it. An accepted manifest reads as
// the same when it is written again.
#include "store/manifest.hpp"
#include "input.hpp"

#include <cstdio>
#include <functional>

namespace {

using namespace tenon;
using namespace tenon::checkpoint;

void only_run_errors(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kRun, error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string body(fuzz::text_of(data, size));
  char tail[64];
  std::snprintf(tail, sizeof tail, ",\n\"manifest_crc32c\": \"%08x\"\n}\n",
                crc32c(std::as_bytes(std::span(body))));
  std::uint32_t crc = 0;
  only_run_errors([&] {
    const Manifest manifest = parse_manifest(body + tail, "input", &crc);
    const std::string text = manifest_text(manifest, &crc);
    try {
      const Manifest again = parse_manifest(text, "again", &crc);
      fuzz::require(manifest_text(again, &crc) == text, "another text after a round trip");
      fuzz::require(
          again.meta == manifest.meta && again.tensors == manifest.tensors && again.step == manifest.step,
          "another manifest after a round trip");
    } catch (const Error& error) {
      fuzz::require(false, std::string("what was written cannot be read: ") + error.what());
    }
  });
  only_run_errors([&] {
    const RankReport report = parse_report(body, "input");
    const std::string text = report_text(report);
    fuzz::require(report_text(parse_report(text, "again")) == text, "another report after a round trip");
  });
  return 0;
}
