# SPDX-License-Identifier: Apache-2.0 OR MIT
# words.rb ROUNDS: strings, arrays, hashes and structs; each round builds and drops them.
Place = Struct.new(:word, :line, :column)

state = 1
draw = lambda do |limit|
  state = (state * 48_271) % 2_147_483_647
  state % limit
end

rounds = Integer(ARGV.fetch(0))
rounds.times do |round|
  places = Array.new(30_000) do |line|
    word = (1 + draw.call(12)).times.map { (97 + draw.call(20)).chr }.join
    Place.new(word, line, draw.call(80))
  end
  by_word = places.group_by { |place| place.word[0, 3] }
  longest = by_word.max_by { |word, found| [found.size, word] }
  text = places.sort_by { |place| [place.word, place.line] }
               .map { |place| "#{place.word}:#{place.line}.#{place.column}" }.join(' ')
  pairs = text.scan(/([a-f]+):(\d+)/)
  text = text.gsub(/\d+/) { |number| number.to_i.to_s(16) }
  puts "#{round}: #{by_word.size} beginnings, #{longest[0]} #{longest[1].size} times, " \
       "#{pairs.size} pairs, #{text.size} characters, sum #{text.sum(32)}"
end
