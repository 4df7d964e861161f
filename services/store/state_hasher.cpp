// Hash of named tensors. Each tensor has its own digest, so tensors may come in any order and from several
// ranks; the result is the hash of the sorted list, framed so that no two different lists read the same.
#include <tenon/checkpoint.hpp>

#include "base/digests.hpp"

#include <charconv>
#include <limits>
#include <map>

TENON_ABI_BEGIN

namespace {

constexpr std::size_t kDigestDigits = 32;

struct Entry {
  DType dtype = DType::kF32;
  Shape shape;
  std::string digest;
};

}  // namespace

struct StateHasher::State {
  std::map<std::string, Entry, std::less<>> entries;
  Xxh3Stream stream;
  bool open = false;
  std::string name;
  Entry current;
  std::int64_t missing = 0;  // bytes of the open tensor that have not come

  void insert(std::string key, Entry entry) {
    if (!entries.emplace(key, std::move(entry)).second) fail_run("tensor '" + key + "' was hashed twice");
  }
};

StateHasher::StateHasher() : state_(std::make_unique<State>()) {}
StateHasher::~StateHasher() = default;

void StateHasher::add(std::string_view name, const TensorView& tensor) {
  if (tensor.space != MemorySpace::kHost)
    fail_run("tensor '" + std::string(name) + "' is not in host memory");
  begin(name, tensor.dtype, tensor.shape);
  if (tensor.elements() > 0) feed(tensor.raw());
  end();
}

void StateHasher::begin(std::string_view name, DType dtype, const Shape& shape) {
  if (state_->open) fail_run("tensor '" + state_->name + "' is still being hashed");
  state_->stream.reset();
  state_->name = name;
  state_->current = {dtype, shape, {}};
  state_->missing = dtype_bytes(dtype, shape.elements());
  state_->open = true;
}

void StateHasher::feed(std::span<const std::byte> bytes) {
  if (!state_->open) fail_run("bytes were fed to a hash outside any tensor");
  state_->missing -= static_cast<std::int64_t>(bytes.size());
  if (state_->missing < 0) {
    fail_run("tensor '" + state_->name + "' got " + std::to_string(-state_->missing) +
             " bytes more than its shape " + state_->current.shape.text() + " needs");
  }
  state_->stream.update(bytes);
}

void StateHasher::end() {
  if (!state_->open) fail_run("no tensor is being hashed");
  state_->open = false;
  if (state_->missing != 0) {
    fail_run("tensor '" + state_->name + "' lacks " + std::to_string(state_->missing) +
             " bytes of its shape " + state_->current.shape.text());
  }
  state_->current.digest = state_->stream.hex();
  state_->insert(std::move(state_->name), std::move(state_->current));
}

std::string StateHasher::digests() const {
  // "<digest> <type> <rank> <extents...> <bytes of the name> <name>\n": the count makes any name readable.
  std::string text;
  for (const auto& [name, entry] : state_->entries) {
    text +=
        entry.digest + " " + std::string(dtype_name(entry.dtype)) + " " + std::to_string(entry.shape.rank());
    for (const std::int64_t extent : entry.shape.extents()) text += " " + std::to_string(extent);
    text += " " + std::to_string(name.size()) + " " + name + "\n";
  }
  return text;
}

void StateHasher::merge(std::string_view digests) {
  const auto fail = [] { fail_run("the digests of another rank are damaged"); };
  const auto word = [&] {
    const std::size_t space = digests.find(' ');
    if (space == std::string_view::npos) fail();
    const std::string_view found = digests.substr(0, space);
    digests.remove_prefix(space + 1);
    return found;
  };
  const auto number = [&](std::int64_t limit) {
    const std::string_view text = word();
    std::int64_t value = -1;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc() || end != text.data() + text.size() || value < 0 || value > limit) fail();
    return value;
  };
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  while (!digests.empty()) {
    Entry entry;
    entry.digest = word();
    if (entry.digest.size() != kDigestDigits ||
        entry.digest.find_first_not_of("0123456789abcdef") != std::string::npos) {
      fail();
    }
    entry.dtype = dtype_from_name(word());
    std::vector<std::int64_t> extents(number(kMaxRank));
    for (std::int64_t& extent : extents) extent = number(kAny);
    entry.shape = Shape(extents);
    const std::size_t size = number(static_cast<std::int64_t>(digests.size()));
    if (size >= digests.size() || digests[size] != '\n') fail();
    state_->insert(std::string(digests.substr(0, size)), std::move(entry));
    digests.remove_prefix(size + 1);
  }
}

std::string StateHasher::hex() const {
  if (state_->open) fail_run("tensor '" + state_->name + "' is still being hashed");
  const std::string list = digests();
  return xxh3_128_of(std::as_bytes(std::span(list)));
}

TENON_ABI_END
