-- Holds 64 MiB in strings.
kept = {}
for i = 1, 64 * 1024 do
  kept[i] = string.rep(string.char(i % 256), 1000) .. i
end
print("ready")
io.stdout:flush()
io.read()
