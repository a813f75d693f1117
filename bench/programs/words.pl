# SPDX-License-Identifier: Apache-2.0 OR MIT
# words.pl ROUNDS: hashes, lists, strings and regular expressions; each round builds and drops them.
use strict;
use warnings;

my ($rounds) = @ARGV;
my $state = 1;
sub next_number { return $state = ($state * 48271) % 2147483647; }

for my $round (1 .. $rounds) {
    my %places;
    for my $place (1 .. 40000) {
        my $word = join '', map { chr(97 + next_number() % 20) } 1 .. 1 + next_number() % 4;
        push @{ $places{$word} }, $place;
    }
    my @often = sort { @{ $places{$b} } <=> @{ $places{$a} } || $a cmp $b } keys %places;
    my $text = join ' ', map { "$_:" . join ',', @{ $places{$_} } } @often;
    my $pairs = () = $text =~ /\b([a-f]+):(\d+),(\d+)/g;
    $text =~ s/(\d+)/sprintf '%x', $1/ge;
    my %by_length;
    $by_length{ length $_ } .= "$_;" for split / /, $text;
    print "$round: ", scalar(@often), " words, $pairs pairs, ", length($text), " characters, ",
        scalar(keys %by_length), " lengths, sum ", unpack('%32C*', $text), "\n";
}
