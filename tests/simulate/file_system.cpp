// SPDX-License-Identifier: Apache-2.0
#include "file_system.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace simulate {

std::shared_ptr<Node> FileSystem::find(const std::string& path) const {
  auto node = root_;
  std::size_t at = 1;
  while (node && at < path.size()) {
    const auto slash = std::min(path.find('/', at), path.size());
    if (const auto name = path.substr(at, slash - at); !name.empty() && name != ".") {
      const auto found = node->names.find(name);
      node = found == node->names.end() ? nullptr : found->second;
    }
    at = slash + 1;
  }
  return node;
}
std::shared_ptr<Node> FileSystem::folder_of(const std::string& path, std::string& name) const {
  const auto slash = path.rfind('/');
  name = path.substr(slash + 1);
  auto folder = find(path.substr(0, std::max<std::size_t>(slash, 1)));
  return folder && folder->folder ? folder : nullptr;
}
int FileSystem::open(const std::string& path, int flags, OpenFile& file) {
  std::string name;
  auto node = find(path);
  if (!node) {
    if (!(flags & O_CREAT)) return ENOENT;
    const auto folder = folder_of(path, name);
    if (!folder) return ENOENT;
    node = folder->names[name] = std::make_shared<Node>();
    ++operations;
  } else if (flags & O_EXCL) {
    return EEXIST;
  }
  if ((flags & O_DIRECTORY) && !node->folder) return ENOTDIR;
  const bool writable = (flags & O_ACCMODE) != O_RDONLY;
  if (writable && node->folder) return EISDIR;
  if (flags & O_TRUNC) node->content.clear(), ++operations;
  file = {node, 0, writable};
  return 0;
}
int FileSystem::write(OpenFile& file, const void* bytes, std::size_t size, std::size_t& written) {
  ++operations;
  if (!file.writable) return EBADF;
  if (interrupted_writes && random->chance(0.2)) return EINTR;
  if (size > 0 && space == 0) return ENOSPC;
  if (short_writes && size > 1) size = 1 + random->below(size);
  written = std::min(size, space);
  if (space != SIZE_MAX) space -= written;
  auto& content = file.node->content;
  content.resize(std::max(content.size(), file.at + written));
  std::memcpy(content.data() + file.at, bytes, written);
  file.at += written;
  return 0;
}
int FileSystem::sync(OpenFile& file) {
  ++operations;
  if (failing_sync) return EIO;
  file.node->durable = file.node->content;
  file.node->durable_names = file.node->names;
  return 0;
}
int FileSystem::rename(const std::string& from, const std::string& to) {
  std::string old_name, new_name;
  const auto old_folder = folder_of(from, old_name), new_folder = folder_of(to, new_name);
  if (!old_folder || !new_folder || !old_folder->names.contains(old_name)) return ENOENT;
  ++operations;
  auto node = old_folder->names[old_name];
  old_folder->names.erase(old_name);
  new_folder->names[new_name] = std::move(node);
  return 0;
}
int FileSystem::link(const std::string& from, const std::string& to) {
  std::string name;
  const auto node = find(from);
  const auto folder = folder_of(to, name);
  if (!node || !folder) return ENOENT;
  ++operations;
  return folder->names.emplace(name, node).second ? 0 : EEXIST;
}
int FileSystem::unlink(const std::string& path) {
  std::string name;
  const auto folder = folder_of(path, name);
  if (!folder || !folder->names.contains(name)) return ENOENT;
  ++operations;
  folder->names.erase(name);
  return 0;
}
int FileSystem::make_folder(const std::string& path) {
  std::string name;
  const auto folder = folder_of(path, name);
  if (!folder) return ENOENT;
  if (folder->names.contains(name)) return EEXIST;
  ++operations;
  auto node = std::make_shared<Node>();
  node->folder = true;
  folder->names[name] = std::move(node);
  return 0;
}
std::vector<std::string> FileSystem::names(const std::string& path) const {
  std::vector<std::string> result;
  if (const auto node = find(path))
    for (const auto& [name, entry] : node->names) result.push_back(name);
  return result;
}
void FileSystem::fill(const Node& node, struct stat& status) {
  status = {};
  status.st_mode = node.folder ? S_IFDIR | 0777 : S_IFREG | 0666;
  status.st_size = static_cast<off_t>(node.content.size());
  status.st_nlink = 1;
}
void FileSystem::lose_power(Random& from) { lose_power(*root_, from); }
void FileSystem::lose_power(Node& node, Random& from) {
  if (!node.folder) {
    if (node.content == node.durable) return;
    // The disk has the old content up to some place, or the new one up to some place, perhaps with a block of rubbish.
    if (from.chance(0.3)) node.content = node.durable;
    else node.content.resize(from.below(node.content.size() + 1));
    if (!node.content.empty() && from.chance(0.3)) {
      const auto at = from.below(node.content.size());
      for (auto i = at; i < std::min<std::uint64_t>(at + 512, node.content.size()); ++i) node.content[i] = '\0';
    }
    node.durable = node.content;
    return;
  }
  // Each name may have changed or not.
  auto names = node.durable_names;
  for (const auto& [name, entry] : node.names) {
    const auto before = names.find(name);
    if ((before == names.end() || before->second != entry) && from.chance(0.5)) names[name] = entry;
  }
  for (const auto& [name, entry] : node.durable_names)
    if (!node.names.contains(name) && from.chance(0.5)) names.erase(name);
  node.names = node.durable_names = names;
  for (const auto& [name, entry] : node.names) lose_power(*entry, from);
}

}  // namespace simulate
