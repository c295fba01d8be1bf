// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization, Authorizations, SkipReason} from "../../src/gateway/Authorizations.sol";
import {Batches} from "../../src/gateway/Batches.sol";
import {Roles} from "../../src/gateway/Roles.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {Signer} from "../support/Signer.sol";
import {Vm, vm} from "../support/Vm.sol";

contract SettleBatchTest is GatewayTest {
    using Signer for Authorization;

    function setUp() public override {
        super.setUp();
        _deposit(alice, 100 * USDC);
        _deposit(bob, 100 * USDC);
    }

    function test_aPaymentMovesItsValueAndNothingElse(uint256 value) public {
        value = _bound(value, 1, 100 * USDC);
        _settle(_pay(alice, seller.addr, value, 1));

        vm.assertEq(_available(alice.addr), 100 * USDC - value);
        vm.assertEq(_available(seller.addr), value);
        vm.assertEq(_available(bob.addr), 100 * USDC);
        vm.assertEq(usdc.balanceOf(address(gateway)), 200 * USDC);
        vm.assertEq(gateway.authorizationState(alice.addr, _nonce(alice.addr, 1)), true);
        vm.assertEq(gateway.authorizationState(alice.addr, _nonce(alice.addr, 2)), false);
        vm.assertEq(gateway.authorizationState(bob.addr, _nonce(alice.addr, 1)), false);
    }

    function test_aBatchTellsWhatItDid() public {
        Authorization[] memory rows = _rows(
            _pay(alice, seller.addr, 3, 1), _pay(alice, seller.addr, 4, 2), _pay(bob, seller.addr, 100 * USDC + 1, 1)
        );

        vm.expectEmit(address(gateway));
        emit Authorizations.PaymentSettled(alice.addr, rows[0].nonce, 3);
        vm.expectEmit(address(gateway));
        emit Authorizations.PaymentSettled(alice.addr, rows[1].nonce, 4);
        vm.expectEmit(address(gateway));
        emit Batches.AuthorizationSkipped(
            1, bob.addr, rows[2].nonce, SkipReason.InsufficientBalance, 100 * USDC + 1, 100 * USDC
        );
        vm.expectEmit(address(gateway));
        emit Batches.PayeeCredited(1, seller.addr, 7);
        vm.expectEmit(address(gateway));
        emit Batches.BatchSettled(1, RECEIPT_ROOT, 3, 2, 7);
        _settle(rows);
    }

    function test_theSellerMayPayBackInTheSameBatch() public {
        // The seller owns nothing before the first row, and pays credit back out of it in the second.
        _settle(
            _rows(_pay(alice, seller.addr, 10, 1), _pay(seller, alice.addr, 4, 1), _pay(alice, seller.addr, 1, 2))
        );
        vm.assertEq(_available(alice.addr), 100 * USDC - 7);
        vm.assertEq(_available(seller.addr), 7);
    }

    function test_aBatchOfReceiptsAloneIsLegal() public {
        vm.expectEmit(address(gateway));
        emit Batches.BatchSettled(1, RECEIPT_ROOT, 0, 0, 0);
        _settle(new Authorization[](0));
        vm.assertEq(gateway.lastBatchId(), 1);
    }

    function test_aNonceOfAnyShapeWorksOnce(bytes32 nonce, bytes32 other) public {
        vm.assume(nonce != other);
        Authorization memory row = _payment(alice.addr, seller.addr, 1, 0);
        row.nonce = nonce;
        _settle(row.signed(alice.key, _gatewayDomain()));
        vm.assertEq(gateway.authorizationState(alice.addr, nonce), true);
        vm.assertEq(gateway.authorizationState(alice.addr, other), false);
        _assertSkipped(row, SkipReason.NonceAlreadyUsed, 0, 1);
    }

    function test_batchesAreNumberedWithoutAGap(uint64 batchId) public {
        vm.assume(batchId != 1);
        vm.expectRevert(abi.encodeWithSelector(Batches.BatchOutOfSequence.selector, batchId, 1));
        vm.prank(relayer.addr);
        gateway.settleBatch(batchId, RECEIPT_ROOT, new Authorization[](0));
    }

    function test_aBatchThatIsTooLargeIsRefused() public {
        uint256 most = gateway.BATCH_AUTHORIZATIONS_MAX();
        vm.expectRevert(abi.encodeWithSelector(Batches.BatchTooLarge.selector, most + 1, most));
        vm.prank(relayer.addr);
        gateway.settleBatch(1, RECEIPT_ROOT, new Authorization[](most + 1));
    }

    function test_onlyARelayerSettles(address anyone) public {
        vm.assume(anyone != relayer.addr);
        vm.expectRevert(abi.encodeWithSelector(Roles.OnlyRelayer.selector, anyone));
        vm.prank(anyone);
        gateway.settleBatch(1, RECEIPT_ROOT, new Authorization[](0));
    }

    function test_nothingIsSettledWhilePaused() public {
        _pause();
        vm.expectRevert(Pausable.EnforcedPause.selector);
        vm.prank(relayer.addr);
        gateway.settleBatch(1, RECEIPT_ROOT, new Authorization[](0));
    }

    // Boundaries

    function test_theWindowIsOpenStrictlyBetweenItsEnds() public {
        Authorization memory row = _payment(alice.addr, seller.addr, 1, 1);
        (row.validAfter, row.validBefore) = (NOW, NOW + 2);
        row = row.signed(alice.key, _gatewayDomain());

        _assertSkipped(row, SkipReason.NotYetValid, NOW, NOW);
        vm.warp(NOW + 2);
        _assertSkipped(row, SkipReason.Expired, NOW + 2, NOW + 2);
        vm.warp(NOW + 1);
        _settle(row);
        vm.assertEq(_available(seller.addr), 1);
    }

    function test_aPaymentOfNothingIsSkipped() public {
        _assertSkipped(_pay(alice, seller.addr, 0, 1), SkipReason.ZeroValue, 1, 0);
    }

    function test_aPaymentToOneselfIsSkipped() public {
        _assertSkipped(
            _pay(alice, alice.addr, 1, 1), SkipReason.SelfTransfer, uint160(alice.addr), uint160(alice.addr)
        );
    }

    function test_aPaymentToNobodyIsSkipped() public {
        _assertSkipped(_pay(alice, address(0), 1, 1), SkipReason.InvalidPayee, 0, 0);
        _assertSkipped(_pay(alice, address(gateway), 1, 2), SkipReason.InvalidPayee, 0, uint160(address(gateway)));
    }

    function test_aPaymentAboveTheBalanceIsSkipped(uint256 value) public {
        value = _bound(value, 100 * USDC + 1, type(uint256).max);
        _assertSkipped(
            _pay(alice, seller.addr, value, 1), SkipReason.InsufficientBalance, value, 100 * USDC
        );
    }

    function test_theWholeBalanceCanBePaid() public {
        _settle(_pay(alice, seller.addr, 100 * USDC, 1));
        vm.assertEq(_total(alice.addr), 0);
    }

    function test_aSkippedPaymentCanBeSettledLater() public {
        Authorization memory row = _pay(alice, seller.addr, 150 * USDC, 1);
        _assertSkipped(row, SkipReason.InsufficientBalance, 150 * USDC, 100 * USDC);
        _deposit(alice, 50 * USDC);
        _settle(row);
        vm.assertEq(_available(seller.addr), 150 * USDC);
    }

    // Forgeries

    function test_attack_aForgedRowIsSkipped(uint256 changedValue) public {
        changedValue = _bound(changedValue, 2, 100 * USDC);
        Authorization memory row = _pay(alice, seller.addr, 1, 1);
        row.value = changedValue;
        _assertForged(row);

        row = _pay(alice, seller.addr, 1, 1);
        row.to = mallory.addr;
        _assertForged(row);

        row = _pay(alice, seller.addr, 1, 1);
        row.nonce = _nonce(alice.addr, 2);
        _assertForged(row);

        row = _payment(alice.addr, mallory.addr, 1, 1).signed(mallory.key, _gatewayDomain());
        _assertForged(row);
    }

    // Each good signature has a twin that a careless check accepts too.
    function test_attack_theTwinOfASignatureIsSkipped() public {
        Authorization memory row = _pay(alice, seller.addr, 1, 1);
        uint256 order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141;
        row.s = bytes32(order - uint256(row.s));
        row.v = row.v == 27 ? 28 : 27;
        _assertMalformed(row);
    }

    function test_attack_otherRecoveryNumbersAreSkipped(uint8 v) public {
        vm.assume(v != 27 && v != 28);
        Authorization memory row = _pay(alice, seller.addr, 1, 1);
        row.v = v;
        _assertMalformed(row);
    }

    // A recovery that fails answers with the zero address: nobody may pay as it, whatever was sent to it.
    function test_attack_theZeroAddressHasNoSignature(bytes32 r, bytes32 s) public {
        Authorization memory row = _payment(address(0), mallory.addr, 1, 1);
        (row.v, row.r, row.s) = (0, r, s);
        _assertMalformed(row);
    }

    // Poison row: whatever Mallory puts into a batch, the rows before and after it settle as if it were not there.
    function test_attack_aPoisonRowDoesNotHurtItsNeighbours(Authorization memory poison, uint8 kind) public {
        kind = uint8(_bound(kind, 0, 3));
        if (kind == 1) poison.from = alice.addr;
        if (kind == 2) poison.value = type(uint256).max;
        if (kind == 3) {
            (poison.from, poison.to) = (mallory.addr, seller.addr);
            (poison.validAfter, poison.validBefore) = (0, type(uint256).max);
            poison = poison.signed(mallory.key, _gatewayDomain());
        }
        _settle(_rows(_pay(alice, seller.addr, 5, 1), poison, _pay(alice, seller.addr, 6, 2)));

        vm.assertEq(_available(alice.addr), 100 * USDC - 11);
        vm.assertEq(_available(seller.addr), 11);
        vm.assertEq(gateway.authorizationState(poison.from, poison.nonce), false);
    }

    function _assertForged(Authorization memory row) private {
        vm.recordLogs();
        _settle(row);
        _assertOnlyLogIsSkip(SkipReason.InvalidSignature);
        vm.assertEq(_available(alice.addr), 100 * USDC);
        vm.assertEq(gateway.authorizationState(alice.addr, row.nonce), false);
    }

    function _assertMalformed(Authorization memory row) private {
        _assertSkipped(row, SkipReason.InvalidSignature, uint160(row.from), 0);
    }

    function _assertOnlyLogIsSkip(SkipReason expected) private {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 2, "one row skipped, one batch settled");
        vm.assertEq(logs[0].topics[0], Batches.AuthorizationSkipped.selector);
        (SkipReason reason,,) = abi.decode(logs[0].data, (SkipReason, uint256, uint256));
        vm.assertEq(uint256(reason), uint256(expected));
    }
}
