-- Tables, strings, closures, coroutines, collection in both modes: every block is allocated and freed through realloc and free.
local seed = 12345
local function roll(limit)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return (seed >> 8) % limit
end

local function checksum(text)
  local sum = 0
  for i = 1, #text do sum = (sum * 31 + text:byte(i)) % 4294967291 end
  return sum
end

for _, mode in ipairs({"incremental", "generational"}) do
  collectgarbage(mode)
  local count, lines = {}, {}
  for n = 1, 100000 do
    local word = "w" .. roll(8000) .. string.rep("x", roll(50))
    count[word] = (count[word] or 0) + 1
    lines[n % 30000 + 1] = word .. " " .. n
  end
  local words = {}
  for word in pairs(count) do words[#words + 1] = word end
  table.sort(words, function(a, b) return count[a] > count[b] or count[a] == count[b] and a < b end)
  for n = 1, 10 do print(words[n], count[words[n]]) end
  table.sort(lines)
  print(#words, checksum(table.concat(lines, "\n")))

  local tree
  local function build(depth)
    if depth == 0 then return {} end
    return {build(depth - 1), build(depth - 1)}
  end
  local function size(node)
    if not node[1] then return 1 end
    return 1 + size(node[1]) + size(node[2])
  end
  for depth = 3, 15, 4 do
    tree = build(depth)
    print(depth, size(tree))
  end

  local made = {}
  for n = 1, 5000 do
    made[n] = coroutine.wrap(function(limit)
      for i = 1, limit do coroutine.yield(n * i) end
    end)
  end
  local sum = 0
  for n = 1, 5000 do sum = sum + made[n](3) + made[n]() end
  print(sum)

  local text = string.rep("alpha beta gamma ", 20000)
  print(select(2, text:gsub("%w+", string.upper)), checksum(text:gsub("(%w+) (%w+)", "%2 %1")))
  count, lines, words, tree, made = nil, nil, nil, nil, nil
  collectgarbage()
end
