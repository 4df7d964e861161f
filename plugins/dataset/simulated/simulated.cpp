// The split of a sample is a function of its index alone, so a set that grows moves no sample to another
// split.
#include "simulated.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace tenon::simulated {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 30;

std::string settled_text(const SimulationManifest& manifest) {
  return fmt::format("{} of {} samples are finished, {} failed", manifest.finished.size(), manifest.samples,
                     manifest.failed.size());
}

void check_name(const std::string& set) {
  const bool plain = set.size() <= 64 && set[0] != '.' && std::all_of(set.begin(), set.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                              c == '_' || c == '-' || c == '.';
                     });
  if (!plain)
    fail_config(fmt::format(
        "data.simulated: set is '{}'; expected letters, digits, '-', '_' and '.', at most 64", set));
}

/// Creates the file complete, and only if it does not exist: a link to a finished file fails when the name
/// exists.
void record(FileSystem& files, const std::string& path, const std::string& text) {
  const std::string own = fmt::format("{}.{}", path, ::gettid());  // ranks may be threads
  files.make_directories(parent_path(path));
  files.write_text_atomically(own, text);
  const int status = ::link(own.c_str(), path.c_str());
  const int code = status == 0 ? 0 : errno;
  files.remove(own);
  if (code != 0 && code != EEXIST)
    throw FileError(code, fmt::format("cannot record the sample set {}: {}", path,
                                      std::generic_category().message(code)));
}

}  // namespace

SimulationManifest sample_set(FileSystem& files, const std::string& folder, const std::string& set) {
  if (!set.empty()) check_name(set);
  const std::string path = simulation_set_path(folder, set);
  if (!set.empty() && files.exists(path))
    return parse_simulation_manifest(read_text(files, path, kLargest), path);
  const SimulationManifest now = read_simulation(files, folder);
  if (set.empty()) {
    if (now.complete()) return now;
    fail_config(fmt::format(
        "data.simulated: the simulation in '{}' is not complete: {}; wait for it, continue it with `tenon "
        "simulate`, or train on what is there now with [data] set = \"NAME\", which records it",
        folder, settled_text(now)));
  }
  if (now.finished.empty()) {
    fail_config(fmt::format("data.simulated: the simulation in '{}' has nothing to train on yet: {}", folder,
                            settled_text(now)));
  }
  record(files, path, simulation_manifest_text(now));
  return parse_simulation_manifest(read_text(files, path, kLargest), path);
}

std::string sample_set_hash(const SimulationManifest& manifest, std::span<const std::int64_t> indices) {
  std::string text = manifest.config_hash() + "\n";
  for (const std::int64_t index : indices) text += fmt::format("{} {}\n", index, manifest.finished.at(index));
  return sha256_of(std::as_bytes(std::span(text)));
}

namespace {

constexpr std::size_t kLongestPath = 4096;
constexpr std::size_t kNamedHoles = 8;

std::vector<std::string> texts_of(const Options& options, std::string_view name) {
  const auto texts = options.texts(name);
  return {texts.begin(), texts.end()};
}

/// Owns a file descriptor; allocates no heap memory, unlike the file layer.
class Descriptor {
 public:
  explicit Descriptor(const char* path) : fd_(::open(path, O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_read(const char* path, const std::string& reason) {
  fail_run(
      fmt::format("simulated array '{}' cannot be read: {}; was the folder changed while it is trained on?",
                  path, reason));
}

/// Reads the last `bytes` bytes of the file: an array after its header, whose text was checked when the set
/// was opened.
void read_end(const char* path, std::int64_t bytes, std::byte* out) {
  const Descriptor file(path);
  struct stat facts {};
  if (file.get() < 0 || ::fstat(file.get(), &facts) != 0) fail_read(path, std::strerror(errno));
  if (facts.st_size < bytes)
    fail_read(path, fmt::format("it has {} bytes, expected more than {}", facts.st_size, bytes));
  const off_t begin = facts.st_size - bytes;
  for (std::int64_t done = 0; done < bytes;) {
    const ssize_t now = ::pread(file.get(), out + done, bytes - done, begin + done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) fail_read(path, now < 0 ? std::strerror(errno) : "it ends early");
    done += now;
  }
}

}  // namespace

Simulated::Simulated(const Options& options, Host& host)
    : IndexedDataset("data.simulated", options, OwnSplit{}),
      host_(host),
      folder_(options.text("path")),
      set_(options.text("set")),
      most_(options.integer("samples")),
      inputs_(texts_of(options, "inputs")),
      targets_(texts_of(options, "targets")),
      val_fraction_(options.real("val_fraction")),
      test_fraction_(options.real("test_fraction")),
      on_test_(options.text("evaluate_on") == "test") {
  if (val_fraction_ + test_fraction_ >= 1) {
    fail_config(fmt::format("data.simulated: val_fraction {} and test_fraction {} leave nothing to train on",
                            val_fraction_, test_fraction_));
  }
}

Simulated::Part Simulated::part_of(std::int64_t index) const {
  const double draw = random_uniform(random_key(0, "simulated.split"), 0, static_cast<std::uint64_t>(index));
  return draw < val_fraction_                    ? Part::kVal
         : draw < val_fraction_ + test_fraction_ ? Part::kTest
                                                 : Part::kTrain;
}

void Simulated::choose_fields(const SimulationManifest& manifest) {
  const auto add = [&](const std::string& name, const std::string& field, bool target) {
    const auto found = std::find_if(manifest.fields.begin(), manifest.fields.end(),
                                    [&](const SimulatedField& each) { return each.name == field; });
    if (found == manifest.fields.end()) {
      std::vector<std::string> there;
      for (const SimulatedField& each : manifest.fields) there.push_back(each.name);
      fail_config(fmt::format("data.simulated: {}: the simulation in '{}' has no field '{}'; it has {}",
                              target ? "targets" : "inputs", folder_, field, fmt::join(there, ", ")));
    }
    const bool twice =
        std::any_of(sources_.begin(), sources_.end(), [&](const Source& each) { return each.name == name; });
    if (name.empty() || twice)
      fail_config(fmt::format("data.simulated: '{}' names two fields, or none", name));
    sources_.push_back({name, *found, dtype_bytes(found->dtype, found->shape.elements())});
    sources_.back().field.target = target;
  };
  for (const bool target : {false, true}) {
    const std::vector<std::string>& chosen = target ? targets_ : inputs_;
    for (const std::string& text : chosen) {
      const std::size_t equals = text.find('=');
      add(text.substr(0, equals), equals == std::string::npos ? text : text.substr(equals + 1), target);
    }
    if (!chosen.empty()) continue;
    for (const SimulatedField& field : manifest.fields) {
      if (field.target == target) add(field.name, field.name, target);
    }
  }
}

void Simulated::report_holes(const SimulationManifest& manifest) const {
  if (manifest.failed.empty()) return;
  std::vector<std::int64_t> named;
  for (const auto& [index, task] : manifest.failed) {
    if (named.size() < kNamedHoles) named.push_back(index);
  }
  host_.log(LogLevel::kWarning,
            fmt::format("data.simulated: {} of {} samples in '{}' failed and are left out: {}{}",
                        manifest.failed.size(), manifest.samples, folder_, fmt::join(named, ", "),
                        manifest.failed.size() > named.size() ? ", ..." : ""));
}

IndexedContent Simulated::load() {
  const std::unique_ptr<FileSystem> files = make_posix_files();
  const SimulationManifest manifest = sample_set(*files, folder_, set_);
  choose_fields(manifest);
  report_holes(manifest);
  if (folder_.size() + 128 > kLongestPath)
    fail_config(fmt::format("data.simulated: path '{}' is too long", folder_));
  std::vector<std::int64_t> chosen;
  for (const auto& [index, digest] : manifest.finished) {
    if (most_ > 0 && static_cast<std::int64_t>(chosen.size()) == most_) break;
    chosen.push_back(index);
    check_simulation_arrays(*files, simulation_sample_folder(folder_, index), manifest.fields);
    const Part part = part_of(index);
    if (part == Part::kTrain) train_.push_back(index);
    if (part == (on_test_ ? Part::kTest : Part::kVal)) held_out_.push_back(index);
  }
  if (most_ > static_cast<std::int64_t>(chosen.size())) {
    fail_config(fmt::format("data.simulated: samples is {}, and the simulation in '{}' has {} finished ones",
                            most_, folder_, chosen.size()));
  }
  IndexedContent content;
  for (const Source& source : sources_) {
    content.fields.push_back({source.name, source.field.dtype, source.field.shape});
    content.is_target.push_back(source.field.target);
  }
  content.sources = {{set_.empty() ? simulation_manifest_path(folder_) : simulation_set_path(folder_, set_),
                      sample_set_hash(manifest, chosen)}};
  content.samples = static_cast<std::int64_t>(train_.size());
  content.val_samples = static_cast<std::int64_t>(held_out_.size());
  if (content.val_samples == 0 && (on_test_ ? test_fraction_ : val_fraction_) == 0) content.val_samples = -1;
  return content;
}

void Simulated::copy(bool from_val_files, std::int64_t index, std::int64_t row,
                     std::span<const TensorView> fields) const {
  const std::int64_t sample = (from_val_files ? held_out_ : train_)[index];
  std::array<char, kLongestPath> path;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    const auto end = fmt::format_to_n(path.data(), path.size() - 1, "{}/samples/{:06}/{}.npy", folder_,
                                      sample, source.field.name);
    *end.out = '\0';
    read_end(path.data(), source.bytes, static_cast<std::byte*>(fields[i].data) + row * source.bytes);
  }
}

}  // namespace tenon::simulated

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.simulated",
                               .version = "0.1.0",
                               .summary = "samples that a simulator made"},
             tenon::simulated::Simulated)
