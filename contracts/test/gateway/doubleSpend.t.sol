// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization, SkipReason} from "../../src/gateway/Authorizations.sol";
import {Batches} from "../../src/gateway/Batches.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {Signer} from "../support/Signer.sol";
import {vm} from "../support/Vm.sol";

/// The same money twice: by a payer who wants two services for one payment, and by a relayer who collects twice,
/// out of malice or because it does not know whether its first try was mined.
contract DoubleSpendTest is GatewayTest {
    using Signer for Authorization;

    function setUp() public override {
        super.setUp();
        _deposit(alice, 100 * USDC);
    }

    function test_attack_aRowTwiceInABatchPaysOnce() public {
        Authorization memory row = _pay(alice, seller.addr, USDC, 1);
        _settle(_rows(row, row, row));
        vm.assertEq(_available(seller.addr), USDC);
    }

    function test_attack_aRowInTwoBatchesPaysOnce() public {
        Authorization memory row = _pay(alice, seller.addr, USDC, 1);
        _settle(row);
        _assertSkipped(row, SkipReason.NonceAlreadyUsed, 0, 1);
    }

    // Alice signs two payments under one nonce and hopes that both sellers deliver. One of them is paid.
    function test_attack_twoPaymentsUnderOneNonceExcludeEachOther(bool reversed) public {
        Authorization memory toSeller = _pay(alice, seller.addr, USDC, 1);
        Authorization memory toBob = _pay(alice, bob.addr, USDC, 1);
        _settle(reversed ? _rows(toBob, toSeller) : _rows(toSeller, toBob));
        vm.assertEq(_available(seller.addr), reversed ? 0 : USDC);
        vm.assertEq(_available(bob.addr), reversed ? USDC : 0);
    }

    // Alice signs more than she has. What is covered settles in order, the rest is skipped and said.
    function test_attack_paymentsBeyondTheBalanceAreNotCovered() public {
        Authorization memory covered = _pay(alice, seller.addr, 60 * USDC, 1);
        Authorization memory uncovered = _pay(alice, bob.addr, 60 * USDC, 2);
        Authorization memory rest = _pay(alice, seller.addr, 40 * USDC, 3);

        vm.expectEmit(address(gateway));
        emit Batches.AuthorizationSkipped(
            1, alice.addr, uncovered.nonce, SkipReason.InsufficientBalance, 60 * USDC, 40 * USDC
        );
        _settle(_rows(covered, uncovered, rest));
        vm.assertEq(_total(alice.addr), 0);
        vm.assertEq(_available(seller.addr), 100 * USDC);
        vm.assertEq(_available(bob.addr), 0);
    }

    // The relayer lost the answer to its transaction and sends it again. It was mined: the second is refused whole.
    function test_attack_aBatchSentTwiceSettlesOnce() public {
        Authorization[] memory rows = _rows(_pay(alice, seller.addr, USDC, 1), _pay(alice, seller.addr, USDC, 2));
        vm.startPrank(relayer.addr);
        gateway.settleBatch(1, RECEIPT_ROOT, rows);
        vm.expectRevert(abi.encodeWithSelector(Batches.BatchOutOfSequence.selector, 1, 2));
        gateway.settleBatch(1, RECEIPT_ROOT, rows);
        vm.stopPrank();
        vm.assertEq(_available(seller.addr), 2 * USDC);
    }

    // The relayer crashed, forgot that the batch was sent, and puts its rows into the next one together with a new row.
    function test_attack_rowsSentAgainInTheNextBatchPayOnce() public {
        Authorization memory first = _pay(alice, seller.addr, USDC, 1);
        Authorization memory second = _pay(alice, seller.addr, USDC, 2);
        _settle(first);
        _settle(_rows(first, second));
        vm.assertEq(_available(seller.addr), 2 * USDC);
    }

    // Nonces share storage words, 256 to a word. One that differs in any one bit is another nonce all the same.
    function test_attack_noTwoNoncesAreConfused(bytes32 nonce) public {
        Authorization memory row = _payment(alice.addr, seller.addr, 1, 0);
        row.nonce = nonce;
        _settle(row.signed(alice.key, _gatewayDomain()));
        vm.assertEq(gateway.authorizationState(alice.addr, nonce), true);
        for (uint256 bit = 0; bit < 256; ++bit) {
            bytes32 twin = bytes32(uint256(nonce) ^ (1 << bit));
            vm.assertEq(gateway.authorizationState(alice.addr, twin), false);
        }
    }

    // Sequences around the ends of words, and far apart, in any order and over two batches: each pays once, and no order
    // of replaying them pays again.
    function test_attack_noncesPayOnceInAnyOrder(uint256 seed) public {
        uint64[8] memory sequences = [uint64(0), 254, 255, 256, 257, 511, 512, 2 ** 63];
        Authorization[] memory rows = new Authorization[](sequences.length);
        for (uint256 i = 0; i < rows.length; ++i) {
            rows[i] = _pay(alice, seller.addr, 1, sequences[i]);
        }
        _shuffle(rows, seed);
        _settle(_rows(rows[0], rows[1], rows[2]));
        _settle(_rows(rows[3], rows[4], rows[5]));
        _settle(_rows(rows[6], rows[7], rows[0]));
        vm.assertEq(_available(seller.addr), rows.length);
        _shuffle(rows, ~seed);
        _settle(rows);
        vm.assertEq(_available(seller.addr), rows.length);
        vm.assertEq(_available(alice.addr), 100 * USDC - rows.length);
    }

    function _shuffle(Authorization[] memory rows, uint256 seed) private pure {
        for (uint256 i = rows.length - 1; i > 0; --i) {
            uint256 j = uint256(keccak256(abi.encode(seed, i))) % (i + 1);
            (rows[i], rows[j]) = (rows[j], rows[i]);
        }
    }

    function test_aWholeWordOfNoncesPaysRequestByRequest() public {
        for (uint64 sequence = 0; sequence < 260; ++sequence) {
            vm.assertEq(gateway.authorizationState(alice.addr, _nonce(alice.addr, sequence)), false);
            _settle(_pay(alice, seller.addr, 1, sequence));
        }
        vm.assertEq(_available(seller.addr), 260);
    }
}
