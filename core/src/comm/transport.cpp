// Homes of the abstract classes of <tenon/transport.hpp>, and of those of <tenon/control.hpp> and
// <tenon/device.hpp> that communicators meet; and the mesh. Virtual tables and type information live in
// the core, so that every plugin shares one copy.
#include <tenon/transport.hpp>

#include <tenon/control.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>

TENON_ABI_BEGIN

ControlPlane::~ControlPlane() = default;
Communicator::~Communicator() = default;
CommunicatorDecorator::~CommunicatorDecorator() = default;
Transport::~Transport() = default;
Rendezvous::~Rendezvous() = default;
NotRepeatable::~NotRepeatable() = default;
DeviceTransport::~DeviceTransport() = default;
DeviceStreams::~DeviceStreams() = default;
DeviceEvents::~DeviceEvents() = default;

std::string_view purpose_name(Purpose purpose) noexcept {
  constexpr std::array<std::string_view, kPurposes> kNames = {
      "gradient", "parameter", "model", "state", "statistics", "actor", "recovery", "control"};
  const auto index = static_cast<std::size_t>(purpose);
  return index < kNames.size() ? kNames[index] : "unknown";
}

// The mesh, and what its ranks agree about before a message of a plan travels.

namespace {

/// The texts of all ranks, in their order.
std::vector<std::string> gather(Communicator& all, const std::string& text) {
  const std::size_t ranks = all.size();
  const std::size_t self = all.rank();
  std::vector<std::int64_t> lengths(ranks, 0);
  lengths[self] = static_cast<std::int64_t>(text.size());
  all.all_gather({lengths.data(), Shape{all.size(), 1}, DType::kI64});
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string rows(ranks * static_cast<std::size_t>(longest), '\0');
  text.copy(rows.data() + self * static_cast<std::size_t>(longest), text.size());
  if (longest > 0) all.all_gather({rows.data(), Shape{all.size(), longest}, DType::kU8});
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r) {
    texts.push_back(rows.substr(r * static_cast<std::size_t>(longest), lengths[r]));
  }
  return texts;
}

/// Where two texts part, with some of what follows.
std::string first_difference(const std::string& a, const std::string& b) {
  const std::size_t at =
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())),
                    b.begin())
          .first -
      a.begin();
  const std::size_t from = at < 20 ? 0 : at - 20;
  return fmt::format("'...{}' and '...{}'", a.substr(from, 60), b.substr(from, 60));
}

}  // namespace

Mesh::Mesh(std::vector<int> extents, int index, Communicator* all, std::vector<Communicator*> axes,
           int replica)
    : extents_(std::move(extents)),
      coordinates_(mesh_coordinates(index, extents_)),
      index_(index),
      replica_(replica),
      all_(all),
      axis_(std::move(axes)) {
  for (const int extent : extents_) size_ *= extent;
  axis_.resize(extents_.size(), nullptr);
}

void Mesh::agree(const std::string& what, const std::string& text, const std::string& problem) {
  if (all_ == nullptr) {
    if (!problem.empty()) fail_config(what + ": " + problem);
    return;
  }
  // One exchange for both: neither holds a zero byte.
  std::vector<std::string> problems, texts;
  for (const std::string& said : gather(*all_, problem + '\0' + text)) {
    const std::size_t end = said.find('\0');
    problems.push_back(said.substr(0, end));
    texts.push_back(said.substr(end + 1));
  }
  for (std::size_t r = 0; r < problems.size(); ++r) {
    if (!problems[r].empty()) fail_config(fmt::format("{}: rank {} of the mesh: {}", what, r, problems[r]));
  }
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] != texts[0]) {
      fail_config(fmt::format("{}: ranks 0 and {} of the mesh do not mean the same: {}", what, r,
                              first_difference(texts[0], texts[r])));
    }
  }
}

TENON_ABI_END
