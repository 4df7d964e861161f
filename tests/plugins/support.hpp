// Shared by the tests of this folder: a host, paths of fixtures, options as the core makes them, texts of
// errors.
#pragma once

#include "toy.hpp"

#include "plugin/abi_tag.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/registry.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace fixture {

class FakeHost final : public tenon::Host {
 public:
  explicit FakeHost(int rank = 0) : rank_(rank) {}
  void log(tenon::LogLevel, std::string_view) override {}
  int rank() const override { return rank_; }
  int world_size() const override { return rank_ + 1; }
  double now() const override { return 0; }
  std::unique_ptr<tenon::Actor> spawn(std::string_view, std::function<void(tenon::Actor&)>) override {
    return nullptr;
  }
  double deadline() const override { return 1; }
  void* query(std::string_view) override { return nullptr; }

 private:
  int rank_;
};

inline std::filesystem::path path(const std::string& name) {
  return std::filesystem::canonical(std::string(FIXTURES) + "/" + name + ".so");
}

/// A fresh folder under the build tree, removed with the object.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::path(FIXTURES) / "scratch" / (name + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
    path_ = std::filesystem::canonical(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// "{file}", "{sdk}" and "{compiler}" (of the host) filled in.
inline std::string filled(std::string text, const std::filesystem::path& file) {
  const std::pair<std::string, std::string> words[] = {
      {"{file}", file.string()},
      {"{sdk}", tenon::plugin::host_abi_tag().sdk_version},
      {"{compiler}", tenon::plugin::host_abi_tag().compiler}};
  for (const auto& [from, to] : words) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from))
      text.replace(at, from.size(), to);
  }
  return text;
}

template <typename Call>
std::string error_text(Call call, tenon::ErrorKind kind) {
  try {
    call();
  } catch (const tenon::Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

/// Checks `toml` against the component's specs and makes it.
struct Made {
  std::unique_ptr<tenon::ResolvedOptions> options;
  tenon::Component<toy::Toy> toy;
};
inline Made make(tenon::Registry& registry, const std::string& type, const std::string& toml,
                 tenon::Host& host) {
  const tenon::Config config = tenon::Config::parse(toml, "test.toml", std::vector<std::string>{});
  auto request = tenon::component_request(config.root(), registry.describe(toy::Toy::kKind, type), &registry);
  Made made;
  made.options = tenon::resolve_options(request).options;
  registry.create_inner(*made.options, host);
  made.toy = registry.create<toy::Toy>(type, *made.options, host);
  return made;
}

}  // namespace fixture
