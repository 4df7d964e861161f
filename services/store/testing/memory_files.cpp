// The in-memory file system of memory_files.hpp.
#include "store/testing/memory_files.hpp"

#include <cerrno>
#include <cstring>

namespace tenon::testing {

namespace {

[[noreturn]] void fail_memory(int code, const std::string& what, const std::string& path) {
  throw FileError(code, "cannot " + what + " " + path + ": " + std::strerror(code));
}

std::string last_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin < path.size()) {
    std::size_t end = path.find('/', begin);
    if (end == std::string::npos) end = path.size();
    if (end > begin && path.substr(begin, end - begin) != ".")
      parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

class MemoryFiles::Writer final : public WritableFile {
 public:
  Writer(MemoryFiles& owner, NodePointer node) : owner_(owner), node_(std::move(node)) {}
  void append(std::span<const std::byte> bytes) override {
    const std::lock_guard lock(owner_.mutex_);
    node_->bytes.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void sync() override {
    const std::lock_guard lock(owner_.mutex_);
    node_->durable_bytes = node_->bytes;
  }
  void close() override {}

 private:
  MemoryFiles& owner_;
  NodePointer node_;
};

class MemoryFiles::Reader final : public ReadableFile {
 public:
  Reader(const MemoryFiles& owner, NodePointer node, std::string path)
      : owner_(owner), node_(std::move(node)), path_(std::move(path)) {}
  std::int64_t size() const override {
    const std::lock_guard lock(owner_.mutex_);
    return static_cast<std::int64_t>(node_->bytes.size());
  }
  void read(std::int64_t offset, std::span<std::byte> out) const override {
    const std::lock_guard lock(owner_.mutex_);
    const std::size_t begin = offset;
    if (begin > node_->bytes.size() || out.size() > node_->bytes.size() - begin)
      fail_memory(EIO, "read", path_);
    if (!out.empty()) std::memcpy(out.data(), node_->bytes.data() + begin, out.size());
  }

 private:
  const MemoryFiles& owner_;
  NodePointer node_;
  std::string path_;
};

MemoryFiles::MemoryFiles() : root_(std::make_shared<Node>()) {
  root_->kind = Kind::kFolder;
}

MemoryFiles::NodePointer MemoryFiles::find(const std::string& path) const {
  NodePointer node = root_;
  for (const std::string& part : split(path)) {
    if (node->kind != Kind::kFolder) return nullptr;
    const auto found = node->names.find(part);
    if (found == node->names.end()) return nullptr;
    node = found->second;
  }
  return node;
}

MemoryFiles::NodePointer MemoryFiles::folder_of(const std::string& path) const {
  NodePointer folder = find(parent_path(path));
  if (!folder) fail_memory(ENOENT, "find the folder of", path);
  if (folder->kind != Kind::kFolder) fail_memory(ENOTDIR, "find the folder of", path);
  return folder;
}

MemoryFiles::NodePointer MemoryFiles::file_for_writing(const std::string& path, bool emptied) {
  const NodePointer folder = folder_of(path);
  NodePointer& node = folder->names[last_name(path)];
  if (!node) {
    node = std::make_shared<Node>();
    record(*folder);
  }
  if (node->kind == Kind::kFolder) fail_memory(EISDIR, "create", path);
  if (emptied) node->bytes.clear();
  return node;
}

std::unique_ptr<WritableFile> MemoryFiles::create(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return std::make_unique<Writer>(*this, file_for_writing(path, true));
}

std::unique_ptr<WritableFile> MemoryFiles::append_to(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return std::make_unique<Writer>(*this, file_for_writing(path, false));
}

std::unique_ptr<ReadableFile> MemoryFiles::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  NodePointer node = find(path);
  if (!node) fail_memory(ENOENT, "open", path);
  if (node->kind != Kind::kFile) fail_memory(EISDIR, "open", path);
  return std::make_unique<Reader>(*this, std::move(node), path);
}

void MemoryFiles::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  const NodePointer source = folder_of(from);
  const NodePointer target = folder_of(to);
  const auto found = source->names.find(last_name(from));
  if (found == source->names.end()) fail_memory(ENOENT, "rename", from);
  const NodePointer node = found->second;
  const auto existing = target->names.find(last_name(to));
  if (existing != target->names.end() && existing->second != node) {
    const Node& old = *existing->second;
    if (old.kind == Kind::kFolder && node->kind != Kind::kFolder) fail_memory(EISDIR, "rename to", to);
    if (old.kind == Kind::kFolder && !old.names.empty()) fail_memory(ENOTEMPTY, "rename to", to);
    if (old.kind != Kind::kFolder && node->kind == Kind::kFolder) fail_memory(ENOTDIR, "rename to", to);
  }
  source->names.erase(last_name(from));
  target->names[last_name(to)] = node;
  record(*target);
  if (source != target) record(*source);
}

void MemoryFiles::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const NodePointer folder = folder_of(path);
  const auto found = folder->names.find(last_name(path));
  if (found == folder->names.end()) fail_memory(ENOENT, "remove", path);
  if (found->second->kind == Kind::kFolder && !found->second->names.empty())
    fail_memory(ENOTEMPTY, "remove", path);
  folder->names.erase(found);
  record(*folder);
}

void MemoryFiles::truncate(const std::string& path, std::int64_t size) {
  const std::lock_guard lock(mutex_);
  const NodePointer node = find(path);
  if (!node || node->kind != Kind::kFile) fail_memory(ENOENT, "truncate", path);
  node->bytes.resize(size);
}

void MemoryFiles::sync_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const NodePointer node = find(path);
  if (!node || node->kind != Kind::kFolder) fail_memory(ENOENT, "sync folder", path);
  node->durable_names = node->names;
  node->unsynced.clear();
}

void MemoryFiles::make_directories(const std::string& path) {
  const std::lock_guard lock(mutex_);
  NodePointer node = root_;
  for (const std::string& part : split(path)) {
    NodePointer& child = node->names[part];
    if (!child) {
      child = std::make_shared<Node>();
      child->kind = Kind::kFolder;
      record(*node);
    }
    if (child->kind != Kind::kFolder) fail_memory(ENOTDIR, "make folder", path);
    node = NodePointer(child);
  }
}

std::vector<DirectoryEntry> MemoryFiles::list(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const NodePointer node = find(path);
  if (!node) fail_memory(ENOENT, "list", path);
  if (node->kind != Kind::kFolder) fail_memory(ENOTDIR, "list", path);
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, child] : node->names) {
    entries.push_back({name, child->kind == Kind::kFolder, child->kind == Kind::kLink});
  }
  return entries;
}

bool MemoryFiles::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return find(path) != nullptr;
}

void MemoryFiles::symlink(const std::string& target, const std::string& link) {
  const std::lock_guard lock(mutex_);
  const NodePointer folder = folder_of(link);
  auto node = std::make_shared<Node>();
  node->kind = Kind::kLink;
  node->bytes = target;
  folder->names[last_name(link)] = std::move(node);
  record(*folder);
}

std::int64_t MemoryFiles::free_bytes(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (!find(path)) fail_memory(ENOENT, "read the free space of", path);
  return free_bytes_;
}

std::string MemoryFiles::content(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const NodePointer node = find(path);
  if (!node || node->kind != Kind::kFile) fail_memory(ENOENT, "look at", path);
  return node->bytes;
}

void MemoryFiles::overwrite(const std::string& path, const std::string& bytes) {
  const std::lock_guard lock(mutex_);
  const NodePointer node = find(path);
  if (!node || node->kind != Kind::kFile) fail_memory(ENOENT, "overwrite", path);
  node->bytes = node->durable_bytes = bytes;
}

void MemoryFiles::settle(Node& node, Survival survival, std::mt19937_64& random) {
  if (node.kind == Kind::kFile) {
    if (survival == Survival::kSyncedOnly) node.bytes = node.durable_bytes;
    if (survival == Survival::kRandom && node.bytes != node.durable_bytes) {
      // Either the old content, or the new one cut where its pages happened to end.
      if (random() % 4 == 0) {
        node.bytes = node.durable_bytes;
      } else {
        node.bytes.resize(random() % (node.bytes.size() + 1));
      }
    }
    node.durable_bytes = node.bytes;
  }
  if (node.kind == Kind::kFolder) {
    std::size_t kept = node.unsynced.size();
    if (survival == Survival::kSyncedOnly) kept = 0;
    if (survival == Survival::kRandom) kept = random() % (node.unsynced.size() + 1);
    if (kept < node.unsynced.size()) node.names = kept == 0 ? node.durable_names : node.unsynced[kept - 1];
    node.durable_names = node.names;
    node.unsynced.clear();
    for (const auto& [name, child] : node.names) settle(*child, survival, random);
  }
}

void MemoryFiles::crash(Survival survival, std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  std::mt19937_64 random(seed);
  settle(*root_, survival, random);
}

}  // namespace tenon::testing
