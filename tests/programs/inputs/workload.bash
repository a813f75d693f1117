# SPDX-License-Identifier: Apache-2.0 OR MIT
# Deterministic work for bash: pipes, command and process substitution, arrays, here-documents.
set -euo pipefail

numbers() {
        local i
        for ((i = 1; i <= $1; i++)); do
                echo "$((i * 7919 % 10007))"
        done
}

echo "sum $(numbers 5000 | gawk '{ sum += $1 } END { print sum }')"
echo "sorted $(numbers 3000 | sort -n | head -n 1700 | tail -n 1)"
echo "unique $(numbers 12000 | sort -u | wc -l)"

declare -A count=()
while read -r number; do
        key=k$((number % 37))
        count[$key]=$((${count[$key]:-0} + 1))
done < <(numbers 4000)
for key in $(printf '%s\n' "${!count[@]}" | sort | head -n 3); do
        echo "$key ${count[$key]}"
done

nested=$(echo "$(echo "$(echo "$(echo deep)er")er")er")
echo "$nested"

text=
for i in {1..400}; do
        text+=$(printf '%s,' "item $i")
done
echo "length ${#text} ${text//item/thing}" | cksum

diff <(numbers 500 | sort) <(numbers 500 | sort -r | sort) && echo same

cat <<END | tr a-z A-Z | sed 's/LINE/row/' | gawk 'NR % 2'
line one $(echo inside)
line two
line three ${nested^^}
END

coproc doubler { while read -r n; do echo $((n * 2)); done; }
child=$!
for i in 1 20 300; do
        echo $i >&"${doubler[1]}"
        read -r answer <&"${doubler[0]}"
        echo "doubled $answer"
done
exec {doubler[1]}>&-
wait "$child"
(exit 3) || echo "status $?"
for i in 1 2 3 4 5 6 7 8; do (numbers 200 | tail -n 1) & done | sort | uniq -c | sed 's/^ *//'
